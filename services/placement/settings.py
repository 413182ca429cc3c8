"""Settings of the placement process."""

from __future__ import annotations

from pydantic import Field

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.runtime.settings import ServiceSettings, SettingsError, WriterSecurity, shown

_RESUME = "[a-z]+-[0-9]{1,9}@[0-9]{1,15}:[0-9]{1,15}(:[1-9][0-9]{0,8})?"
_RESUMES = f"^({_RESUME}(,{_RESUME})*)?$"
_CELL = " *[a-z0-9._-]{1,64} *"
_CELLS = f"^({_CELL}(,{_CELL})*)?$"


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
        pattern=_RESUMES,
        description="inputs that have lost records and are read on: INPUT-PARTITION@READ:FROM[:TIME], by commas",
    )
    begin_cells: str = Field(
        "",
        max_length=10_000,
        pattern=_CELLS,
        description="cells, by commas, that begin though the log holds decisions of theirs that no key proves",
    )
    poll_records: int = Field(2_000, ge=1, le=100_000, description="inputs of one topic taken at once")

    @property
    def resumes(self) -> dict[tuple[str, int], tuple[int, int]]:
        """What `resume_inputs` says: of an input that was read to an offset, the offset from which it is read on, and
        for the how manieth time in just this way (1: the first).
        """
        found = {}
        for words in self.resume_inputs.split(",") if self.resume_inputs else ():
            source, _, offsets = words.partition("@")
            read, start, *time = map(int, offsets.split(":"))
            found[source, read] = start, time[0] if time else 1
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
