"""Whether a repair is asked for with a cell file by whose keys it would give up what is whole.

To a file without a key of the cell, the writer's own decisions are forged, as if a stranger had written them; to a file
that asks for no signatures, a stranger's are the writer's. The cell file in force, which the state holds from which the
cell would go on, tells what it should name; so does that of the newest whole snapshot, where that state is older.
"""

from __future__ import annotations

from fallow.cli.log.read_back import all_records
from fallow.cli.output.counts import counted
from fallow.shared.cluster.fold.fold import LogRecord
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import CHAIN_HEADER, SIGNATURE_HEADER, Decision, next_chain
from fallow.shared.log.keys.signers import keys_only_in_force, part_in_force
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.signatures import CellKeys
from fallow.shared.log.port import Log
from fallow.shared.log.reading import header, log_record

WHAT_TO_DO = "Nothing is changed. Give this command the cell file in force"


async def keys_lacking(log: Log, layout: Layout, state: CellState, *, gives_up: bool) -> str:
    """What is wrong with the signatures of the own file, and what to do; "" where nothing is. `state` is the one from
    which the cell would go on. `gives_up`: a repair would give up decisions or snapshots. Raises LogUnavailable.
    """
    own = layout.signers.of(state.cell)
    return _asks_for_fewer(own, state) or await _believes_too_little(log, layout, state, own, gives_up=gives_up)


async def keys_lacking_by(log: Log, layout: Layout, snapshot: CellState) -> str:
    """The lacking keys by the state of a snapshot from which the cell would not go on: with the right keys it might."""
    lacking = await _believes_too_little(log, layout, snapshot, layout.signers.of(snapshot.cell), gives_up=True)
    way = f"If a stranger wrote the snapshot of version {snapshot.version}, make it void first"
    return lacking and f"{lacking}. {way}"


async def _believes_too_little(
    log: Log, layout: Layout, state: CellState, own: CellKeys | None, *, gives_up: bool
) -> str:
    asks = "" if own is None else await _asks_for_more(log, layout, state, own)
    return asks or await _unproven(log, layout, state, own, gives_up=gives_up)


def _asks_for_fewer(own: CellKeys | None, state: CellState) -> str:
    """Where the own file believes without a signature what the file in force does not."""
    part = part_in_force(state.cell_file, state.cell)
    signing = None if part is None else part.signing
    if signing is None or (own is not None and own.from_version <= signing.from_version):
        return ""
    asks = "asks for none" if own is None else f"asks for them from version {own.from_version} on"
    there = f"the file in force at version {state.version} asks for signatures from version {signing.from_version} on"
    return f"signing: this cell file {asks}, and {there}. {WHAT_TO_DO}"


async def _asks_for_more(log: Log, layout: Layout, state: CellState, own: CellKeys) -> str:
    """Where the own file asks for signatures of unsigned decisions behind the state that are the writer's: a key proves
    one that continues them, or the file in force asks for none so early.
    """
    part = part_in_force(state.cell_file, state.cell)
    signing = None if part is None else part.signing
    is_unsigned, first_signed = await _unsigned_behind(log, layout, state, own)
    asks = f"signing: this cell file asks for signatures from version {own.from_version} on"
    if first_signed:
        return f"{asks}, and the log shows that they begin with version {first_signed}. {WHAT_TO_DO}"
    if is_unsigned and signing is not None and signing.from_version > state.version + 1:
        there = f"the file in force at version {state.version} asks for them from version {signing.from_version} on"
        return f"{asks}, and {there}. {WHAT_TO_DO}"
    return ""


async def _unsigned_behind(log: Log, layout: Layout, state: CellState, own: CellKeys) -> tuple[bool, int]:
    """Whether an unsigned decision that the own file does not believe would be the next one, were it believed; and the
    version of the first one that a key proves and that continues such, 0 where there is none.
    """
    version, chain, tp = state.version, state.chain, layout.tp("decisions", state.cell)
    end = (await log.end_offsets([tp]))[tp]
    async for record in all_records(log, tp, (await log.begin_offsets([tp]))[tp], end):
        if header(record, CHAIN_HEADER) != next_chain(
            chain, record.value or b""
        ):  # what does not continue it is not decoded
            continue
        decision = log_record(record, None).decision
        if not isinstance(decision, Decision) or (decision.cell, decision.version) != (state.cell, version + 1):
            continue
        if not log_record(record, own).is_forged(version):
            return version > state.version, decision.version if version > state.version else 0
        if not header(record, SIGNATURE_HEADER):
            version, chain = decision.version, header(record, CHAIN_HEADER)
    return version > state.version, 0


async def _unproven(log: Log, layout: Layout, state: CellState, own: CellKeys | None, *, gives_up: bool) -> str:
    """Where a key that the own file does not name proves decisions behind the state; or where no keys are in force
    there, and a decision that no key proves would extend it: for all that is known it is the writer's. A key that the
    own file retires earlier than the one in force does is retired on purpose.
    """
    part = part_in_force(state.cell_file, state.cell)
    has_keys = part is not None and part.signing is not None
    elsewhere = keys_only_in_force(state.cell_file, own, state.cell)
    if own is None or (elsewhere is None if has_keys else not gives_up):
        return ""
    count, first, tp = 0, 0, layout.tp("decisions", state.cell)
    end = (await log.end_offsets([tp]))[tp]
    async for record in all_records(log, tp, (await log.begin_offsets([tp]))[tp], end):
        entry = log_record(record, elsewhere)  # what is forged is not decoded
        if not isinstance(entry.decision, Decision) or entry.decision.cell != state.cell:
            continue
        is_known = not log_record(record, own).is_forged(entry.decision.version - 1)
        if not is_known and (_is_proven(entry, state) if has_keys else _extends(entry, state)):
            count, first = count + 1, first if count else record.offset
    if not count:
        return ""
    text = f"no key of this cell file proves {counted(count, 'decision')} from offset {first} on"
    if has_keys:
        return f"{tp[0]}/{tp[1]}: {text}, and a key of the file in force at version {state.version} does. {WHAT_TO_DO}"
    way = "If a stranger wrote them, delete them first (kafka-delete-records)"
    return f"{tp[0]}/{tp[1]}: {text}, which may be the writer's. {WHAT_TO_DO}. {way}"


def _is_proven(entry: LogRecord, state: CellState) -> bool:
    return not entry.is_forged(state.version)


def _extends(entry: LogRecord, state: CellState) -> bool:
    """Whether the record would be the next decision, were it believed."""
    return (
        isinstance(entry.decision, Decision)
        and entry.decision.version == state.version + 1
        and entry.chain == next_chain(state.chain, entry.value)
    )


def keys_told(own: CellKeys | None, state: CellState) -> list[str]:
    """What a person has to know of keys before and behind a repair from this state."""
    return _retired_early(own, state) + _retired_beyond(own, state.version)


def _retired_early(own: CellKeys | None, state: CellState) -> list[str]:
    """Keys that the own file retires before the file in force does: on purpose, where one was stolen."""
    part = part_in_force(state.cell_file, state.cell)
    if own is None or part is None or part.signing is None:
        return []
    there = {key.public: key.until_version for key in part.signing.keys}
    return [
        f"Key {key.public} is retired at version {key.until_version} by this cell file, and later or not at all by the "
        "one in force: what it has signed since is given up."
        for key in own.keys
        if key.until_version is not None and key.public in there and (there[key.public] or 2**63) > key.until_version
    ]


def _retired_beyond(own: CellKeys | None, version: int) -> list[str]:
    """What a person has to do with keys that are retired at a version to which the cell falls back: their holders could
    decide again.
    """
    keys = () if own is None else own.keys
    return [
        f"Key {key.public} is retired at version {key.until_version}, and the cell goes on from version {version}: "
        f"its owner could decide again. Once it is repaired, set its until_version to {version} on every machine, "
        "before the services start."
        for key in keys
        if key.until_version is not None and key.until_version > version
    ]
