"""Whether `fallow up` on servers that it was given would come upon a cell of somebody else's: services that run there
already, or a cell that goes by another cell file, which a writer that begins would replace by its own.
"""

from __future__ import annotations

from services.cli.access import Access
from services.cli.cells_there import cells_in_the_log
from services.cli.newest import newest_state
from services.cli.read_back import LogOverflowed
from shared.cluster.config import CellFile
from shared.cluster.file_in_force import as_effect, difference, from_effect
from shared.cluster.fold import DamagedLog
from shared.cluster.state import CellState
from shared.log.group_members import member_count
from shared.log.port import LogTruncated
from shared.log.snapshots import NoUsableSnapshot

WRITERS = "placement"

FENCED = (DamagedLog, NoUsableSnapshot, LogTruncated, LogOverflowed)
"""A cell whose log has such a fault gets no decision, and so no other file, until it is repaired."""


async def what_is_there(access: Access) -> str:
    """What `up` would come upon, as the end of a sentence; "" where it can begin. Raises LogUnavailable."""
    file = access.cells()
    writers = await member_count(access.kafka_access, access.layout().group(WRITERS))
    if writers:
        return f"services of namespace {access.namespace} run already"
    for cell, owner in (await cells_in_the_log(access)).items():
        if owner != cell:
            return f"the log of cell {cell} is that of cell {owner}"
        try:
            state = await newest_state(access, cell)
        except FENCED:
            continue
        if writers is None and state.version:
            # The embedded broker cannot tell, and forgets all when its `up` ends: so that one runs.
            return f"cell {cell} runs already"
        if other := other_file(state, file, str(access.cell_path)):
            return other
    return ""


def other_file(state: CellState, file: CellFile, name: str) -> str:
    """That the cell goes by another file than this one, of which `name` is the name, and where these differ; "" where
    it does not, or where it cannot be read here: then no process puts another in its place.
    """
    effect = state.cell_file
    if effect is None or effect.digest == as_effect(file).digest:
        return ""
    try:
        parts = difference(from_effect(effect), file, state.cell)
    except (ValueError, KeyError):
        return ""
    return f"cell {state.cell} goes by cell file {effect.digest[:8]}, from which {name} differs in {parts}"
