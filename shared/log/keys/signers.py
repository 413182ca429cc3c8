"""By whose keys the decisions of each cell are known: by those of the reader's own cell file, and no others.

The log holds the cell file that is in force, and a snapshot the state with it. Neither is asked: who could forge one
would name a key of his own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from fallow.shared.cluster.model.config import CellFile, CellPart
from fallow.shared.cluster.model.file_in_force import from_effect
from fallow.shared.events.effects import CellFileSet
from fallow.shared.log.machine.signatures import CellKeys, keys_of


class Signers:
    """Of the cells of one file; without a file no cell has keys."""

    def __init__(self, file: CellFile | None = None) -> None:
        self._keys = {} if file is None else keys_of_cells(file)

    def of(self, cell: str) -> CellKeys | None:
        """The keys of a cell; None where its decisions are not signed."""
        return self._keys.get(cell)

    async def renewed(self) -> bool:
        """Read the file again, if it has changed. Whether there are other keys now. A command reads it once."""
        return False

    def go_by(self, file: CellFile) -> None:
        """The keys of this file count from now on: the process has accepted it."""
        self._keys = keys_of_cells(file)

    def skipped(self, cell: str, offsets: Sequence[int]) -> None:
        """These records were passed over: no key proves them."""


def keys_of_cells(file: CellFile) -> dict[str, CellKeys]:
    """The keys of each cell that has any."""
    signed = [cell for cell in file.cells if cell.signing is not None]
    if not signed:
        return {}
    from fallow.shared.log.keys.ed25519 import verify  # noqa: PLC0415 - megabytes, which no cell without keys needs

    found = {cell.name: keys_of(cell, verify) for cell in signed}
    return {name: keys for name, keys in found.items() if keys is not None}


def keys_only_in_force(in_force: CellFileSet | None, own: CellKeys | None, cell: str) -> CellKeys | None:
    """The keys that the cell file in force names and the reader's own does not; None where there are none, or the file
    cannot be read here. They prove nothing: they show that the own file is not the newest.
    """
    if own is None or (there := part_in_force(in_force, cell)) is None or there.signing is None:
        return None
    known = {key.public for key in own.keys}
    unknown = tuple(key for key in there.signing.keys if key.public not in known)
    return replace(own, from_version=1, keys=unknown) if unknown else None


def asks_too_early(in_force: CellFileSet | None, own: CellKeys | None, cell: str, version: int) -> bool:
    """Whether the reader's own file asks for a signature of this version of the cell, and the file in force does not:
    then others believe a decision that this reader passes over.
    """
    if own is None or own.from_version > version or (there := part_in_force(in_force, cell)) is None:
        return False
    return there.signing is None or there.signing.from_version > version


@lru_cache(maxsize=16)
def part_in_force(in_force: CellFileSet | None, cell: str) -> CellPart | None:
    """What the cell file in force says of the cell; None where there is no such file, or it cannot be read here. It is
    asked for with each batch of decisions.
    """
    try:
        return None if in_force is None else from_effect(in_force).cell(cell)
    except (ValueError, KeyError):
        return None


def begun_too_early(before: CellPart, after: CellPart, version: int) -> str | None:
    """What is wrong with a file that begins the signatures of this cell at a version which is written already: a
    process that starts with it believes none of the decisions between, and cannot read on. `before` is what the file in
    force says of the cell, `version` the last one written.
    """
    old, new, cell = before.signing, after.signing, after.name
    if new is None or new.from_version > version or (old is not None and old.from_version <= new.from_version):
        return None
    return (
        f"cells: {cell}: signing: from_version: {new.from_version} is written already, without a signature that must "
        f"be there: must be above {version}, the cell's version now"
    )
