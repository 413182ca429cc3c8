"""What the keys of a cell file that is to be put in force do not prove of the log: the services would refuse it for
that, or could not go on with it, and would say so in their own logs alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fallow.cli.log.past import Then, open_past
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.cluster.model.file_in_force import from_effect
from fallow.shared.cluster.model.state import CellState
from fallow.shared.log.keys.signers import Signers, begun_too_early, keys_only_in_force, part_in_force
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log

NONE_PROVEN = "no key of it proves any decision of cell {cell}: the one may be missing with which the cell began"
LACKS_KEY = "a key is missing, by which the decisions behind version {version} of cell {cell} are signed"
ADD = "Add each line of `keys` that the cell file in force has"


@dataclass(frozen=True, slots=True)
class Picture:
    """A cell as far as keys prove its log, and whether they prove its end."""

    state: CellState
    is_proven: bool


async def picture_of(log: Log, layout: Layout, cell: str) -> Picture:
    """The cell by the keys of the layout. Raises as `open_past` and `Past.go_to` do."""
    newest = Then()
    async with open_past(log, layout, cell, newest) as past:
        state = await past.go_to(newest)
        return Picture(state, past.is_end_proven)


async def mistake_in_keys(log: Log, layout: Layout, file: CellFile, own: Picture) -> str:
    """Why the services would not go by this file, by whose keys `own` is read, or "". Records at the end of the log
    that neither these keys prove nor those of the file in force are a stranger's, and no reason. Raises as
    `picture_of` does.
    """
    cell, signers = own.state.cell, layout.signers
    there = own if own.is_proven else await _by_keys_in_force(log, layout, own)
    before = part_in_force(there.state.cell_file, cell)
    if before is not None and (why := begun_too_early(before, file.cell(cell), there.state.version)):
        return why
    if own.is_proven:
        return ""
    where = f"cells: {cell}: signing: keys:"
    if not own.state.version:
        return f"{where} {NONE_PROVEN.format(cell=cell)}. {ADD}"
    lacks = keys_only_in_force(own.state.cell_file, signers.of(cell), cell) is not None
    if lacks and there.state.version > own.state.version:
        return f"{where} {LACKS_KEY.format(cell=cell, version=own.state.version)}. {ADD}"
    return ""


async def _by_keys_in_force(log: Log, layout: Layout, own: Picture) -> Picture:
    """The cell by the keys of the file that is in force as far as the own keys tell; without any where they prove
    nothing, so that a file that asks for signatures too early is told from one that lacks a key.
    """
    try:
        file = None if own.state.cell_file is None else from_effect(own.state.cell_file)
        return await picture_of(log, replace(layout, signers=Signers(file)), own.state.cell)
    except (DamagedLog, ValueError):
        return own
