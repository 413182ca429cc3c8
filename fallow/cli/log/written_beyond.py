"""What another release has written beyond the snapshot from which a repair would go on: it would be given up."""

from __future__ import annotations

import msgspec

from fallow.cli.log.read_back import all_records
from fallow.shared.cluster.fold.fold import BY_ANOTHER_RELEASE
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import TYPE_HEADER, UNREAD, OfAnotherRelease, Undecodable, shorten
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.snapshots import SnapshotChunk, SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, Record
from fallow.shared.log.reading import event_of, header, log_record

OURS = (Decision.type, SnapshotChunk.type, SnapshotManifest.type)


class _Named(msgspec.Struct):
    cell: str


async def written_by_another_release(
    log: Log, layout: Layout, state: CellState, manifest: SnapshotManifest | None, start: int, *, is_emptied: bool
) -> str:
    """Where another release has written a decision from offset `start` on, or a snapshot behind this one, what this
    release does not read of it, and what a person may do; "" where it has not. `state` is the one from which the cell
    would go on. `is_emptied`: no decision leads to it. Raises LogUnavailable.
    """
    snapshot = "" if manifest is None else manifest.snapshot
    in_decisions = await _in_decisions(log, layout, state, start)
    found = in_decisions or await _in_snapshots(log, layout, state.cell, snapshot)
    if found is None:
        return ""
    record, why = found
    of = "" if isinstance(why, OfAnotherRelease) else "is whole and cannot be read, as that of another release: "
    place = f"{record.topic}/{record.partition}, offset {record.offset}: {of}{why}"
    way = _if_a_strangers(record, is_decision=in_decisions is not None, is_emptied=is_emptied)
    return f"{place}; {BY_ANOTHER_RELEASE}{way}"


def _if_a_strangers(record: Record, *, is_decision: bool, is_emptied: bool) -> str:
    """What an operator may do who knows that no release has written this record. Good decisions before it are not to be
    deleted with it.
    """
    if not is_decision:
        key = shorten((record.key or b"").decode("utf-8", "backslashreplace"))
        how = f"make it void by a record of its key ({key}) without a value"
    elif is_emptied:
        how = f"delete what stands before offset {record.offset + 1} (kafka-delete-records)"
    else:
        return ""
    return f". If none of your releases wrote it, {how}, and repair then"


async def _in_decisions(log: Log, layout: Layout, state: CellState, start: int) -> tuple[Record, Undecodable] | None:
    """The first such record. What is forged is none, nor what names no chain or does not continue the one before it."""
    tp, keys, before = layout.tp("decisions", state.cell), layout.signers.of(state.cell), ""
    async for record in all_records(log, tp, start, (await log.end_offsets([tp]))[tp]):
        if record.value is None or log_record(record, keys).is_forged(state.version):
            continue
        why, chain = _beyond_us(record, state.cell), header(record, CHAIN_HEADER)
        continues = bool(chain) and (not before or chain == next_chain(before, record.value))
        if why is not None and (continues or isinstance(why, OfAnotherRelease)):
            return record, why
        before = chain or before
    return None


async def _in_snapshots(log: Log, layout: Layout, cell: str, snapshot: str) -> tuple[Record, Undecodable] | None:
    """The first such record that stands behind the last manifest of this snapshot and is not void."""
    behind: dict[bytes | None, tuple[Record, Undecodable]] = {}
    tp = layout.tp("snapshots", cell)
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    async for record in all_records(log, tp, begin, end):
        behind.pop(record.key, None)
        event = None if record.value is None else event_of(record)
        if isinstance(event, SnapshotManifest) and event.snapshot == snapshot:
            behind.clear()
        elif (why := _beyond_us(record, cell)) is not None:
            behind[record.key] = record, why
    return next(iter(behind.values()), None)


def _beyond_us(record: Record, cell: str) -> Undecodable | None:
    """Why this record of the cell, which is whole, cannot be read: it is of another version, or holds a field, an
    effect or a value that this release does not know. None where it can, and where it is damaged or of something else.
    """
    event = None if record.value is None else event_of(record)
    if not isinstance(event, Undecodable) or isinstance(event, OfAnotherRelease):
        return event if isinstance(event, OfAnotherRelease) else None
    try:
        named = msgspec.json.decode(record.value or b"", type=_Named)
    except UNREAD:
        return None
    return event if header(record, TYPE_HEADER) in OURS and named.cell == cell else None
