"""Whether a repair is asked for with a cell file that lacks the keys of the cell: it would give up what is whole.

To such a file the writer's own decisions are forged, as if a stranger had written them. The cell file in force, which
the state holds with which the log goes on, names the keys that prove them.
"""

from __future__ import annotations

from fallow.cli.log.read_back import all_records
from fallow.cli.output.counts import counted
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.signatures import CellKeys, keys_of
from fallow.shared.log.port import Log
from fallow.shared.log.reading import log_record
from fallow.shared.log.signers import part_in_force

WHAT_TO_DO = "Nothing is changed. Give this command the cell file in force, or put its keys into this one"


async def keys_lacking(log: Log, layout: Layout, state: CellState) -> str:
    """What is wrong with the keys of the own file, and what to do; "" where nothing is. `state` is the one from which
    the cell would go on. Raises LogUnavailable.

    Without a state there is no file in force: then any decision may be the cell's that no key proves.
    """
    own, tp = layout.signers.of(state.cell), layout.tp("decisions", state.cell)
    if own is None:
        return ""
    in_force = _in_force(state, own)
    if in_force is None and state.version:
        return ""
    unproven, first = 0, 0
    ends = await log.end_offsets([tp])
    async for record in all_records(log, tp, (await log.begin_offsets([tp]))[tp], ends[tp]):
        if not log_record(record, own).is_forged(state.version):
            continue
        entry = log_record(record, in_force)  # what is forged is not decoded
        is_decision = isinstance(entry.decision, Decision) and entry.decision.cell == state.cell
        if is_decision and not entry.is_forged(state.version):
            first = record.offset if unproven == 0 else first
            unproven += 1
    if not unproven:
        return ""
    what = f"{counted(unproven, 'decision')} from offset {first} on: no key of this cell file proves them"
    why = "" if in_force is None else f", and a key of the file in force at version {state.version} does"
    return f"{tp[0]}/{tp[1]}: {what}{why}. {WHAT_TO_DO}"


def retired_beyond(own: CellKeys | None, version: int) -> list[str]:
    """What a person has to do with keys that are retired at a version to which the cell falls back: their holders could
    decide again.
    """
    keys = () if own is None else own.keys
    return [
        f"Key {key.public} is retired at version {key.until_version}, and the cell goes on from version {version}: "
        f"whoever has it could decide again. Set its until_version to {version} on every machine before the services "
        "start."
        for key in keys
        if key.until_version is not None and key.until_version > version
    ]


def _in_force(state: CellState, own: CellKeys) -> CellKeys | None:
    """The keys of the cell file in force; None where there is no such file, or the cell has none by it."""
    part = part_in_force(state.cell_file, state.cell)
    return None if part is None else keys_of(part, own.verify)
