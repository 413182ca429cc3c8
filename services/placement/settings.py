"""Settings of the placement process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pydantic import Field, field_validator

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.decisions import INPUTS
from fallow.shared.runtime.settings import ServiceSettings, SettingsError, WriterSecurity, shown

# One way to write a number: another would be of an input that there is not.
_NUMBER = "(0|[1-9][0-9]{0,%d})"
_RESUME = f"({'|'.join(INPUTS)})-{_NUMBER % 8}@{_NUMBER % 14}:{_NUMBER % 14}(:[1-9][0-9]{{0,8}})?"
_RESUMES = re.compile(f"({_RESUME}( *, *{_RESUME})*)?")
_RESUMES_RULE = (
    "must be INPUT-PARTITION@READ:FROM or INPUT-PARTITION@READ:FROM:TIME, several by commas, such as jobs-0@12:15,"
    f" and INPUT one of {', '.join(INPUTS)}"
)
_CELL = " *[a-z0-9._-]{1,64} *"
_CELLS = re.compile(f"({_CELL}(,{_CELL})*)?")
_CELLS_RULE = "must be names of cells, several by commas"


def _decided(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Of each: the input, how far it was read, from where it is read on, for the how manieth time (1: the first)."""
    for words in filter(None, map(str.strip, text.split(","))):
        source, _, offsets = words.partition("@")
        read, start, *time = map(int, offsets.split(":"))
        yield source, read, start, time[0] if time else 1


def _must_agree(decided: Iterable[tuple[str, int, int, int]]) -> None:
    """Raises ValueError where two of them may be meant for the same loss."""
    starts, losses = dict[tuple[str, int], int](), set[tuple[str, int, int]]()
    for source, read, start, time in decided:
        # A number counts the losses behind which it was read on from this very offset: it parts no two offsets.
        if (other := starts.setdefault((source, read), start)) != start:
            rule = f"must say of {source}@{read} one offset from which it is read on"
            raise ValueError(f"{rule}, and says {other} and {start}")
        if (source, read, time) in losses:
            rule = "must say once of each loss that it is read on"
            raise ValueError(f"{rule}, and says it twice of {source}@{read}:{start}:{time}")
        losses.add((source, read, time))


class PlacementSettings(ServiceSettings, WriterSecurity):
    """How the writer paces itself, and the key with which it signs."""

    pace_wall_ms: int = Field(
        20, ge=0, le=1_000, description="the longest pause between two records, in which inputs gather under load"
    )
    clock_bound_wall_ms: int = Field(
        30_000,
        ge=1_000,
        le=3_600_000,
        description="largest allowed clock difference from the broker; beyond it this process writes no cell",
    )
    resume_inputs: str = Field(
        "",
        description="inputs that have lost records and are read on: INPUT-PARTITION@READ:FROM[:TIME], by commas",
    )
    begin_cells: str = Field(
        "",
        max_length=10_000,
        description="cells, by commas, that begin though the log holds decisions of theirs that no key proves",
    )
    poll_records: int = Field(2_000, ge=1, le=100_000, description="inputs of one topic taken at once")

    @field_validator("resume_inputs")
    @classmethod
    def _are_resumes(cls, text: str) -> str:
        if not _RESUMES.fullmatch(text.strip(" ")):
            raise ValueError(_RESUMES_RULE)
        _must_agree(_decided(text))
        return text

    @field_validator("begin_cells")
    @classmethod
    def _are_cells(cls, text: str) -> str:
        if not _CELLS.fullmatch(text):
            raise ValueError(_CELLS_RULE)
        return text

    @property
    def resumes(self) -> dict[tuple[str, int], tuple[int, frozenset[int]]]:
        """What `resume_inputs` says: of an input that was read to an offset, the offset from which it is read on, and
        for the how manieth times in just this way (1: the first).
        """
        found = dict[tuple[str, int], tuple[int, frozenset[int]]]()
        for source, read, start, time in _decided(self.resume_inputs):
            _, times = found.get((source, read), (start, frozenset[int]()))
            found[source, read] = start, times | {time}
        return found

    @property
    def begins(self) -> frozenset[str]:
        """The cells that `begin_cells` names."""
        return frozenset(name.strip() for name in self.begin_cells.split(",") if name.strip())


def check_cells(settings: PlacementSettings, file: CellFile) -> None:
    """Raises SettingsError where the settings name a cell that the cell file does not have."""
    known = [cell.name for cell in file.cells]
    if unknown := sorted(settings.begins - set(known)):
        at, rule = settings.cell_file, f"the cell file has no cell {', '.join(map(repr, unknown))}, but"
        raise SettingsError(f"FALLOW_BEGIN_CELLS = {shown(settings.begin_cells)}: {rule} {', '.join(known)} ({at})")
