"""What another release has written beyond the snapshot from which a repair would go on: it would be given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from fallow.cli.log.read_back import records_between
from fallow.shared.events.decisions import CHAIN_HEADER, Decision, next_chain
from fallow.shared.events.encoding import TYPE_HEADER, UNREAD, OfAnotherRelease, Undecodable
from fallow.shared.events.snapshots import SnapshotChunk, SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import event_of, header, log_record

OURS = (Decision.type, SnapshotChunk.type, SnapshotManifest.type)


class _Named(msgspec.Struct):
    cell: str


async def written_by_another_release(log: Log, layout: Layout, cell: str, snapshot: str, version: int) -> str:
    """Where another release has written a decision, or a snapshot behind this one of this version, and what this
    release does not read of it; "" where it has not. Raises LogUnavailable.
    """
    found = await _in_decisions(log, layout, cell, version) or await _in_snapshots(log, layout, cell, snapshot)
    if found is None:
        return ""
    record, why = found
    of = "" if isinstance(why, OfAnotherRelease) else "is whole and cannot be read, as that of another release: "
    return f"{record.topic}/{record.partition}, offset {record.offset}: {of}{why}"


async def _in_decisions(log: Log, layout: Layout, cell: str, version: int) -> tuple[Record, Undecodable] | None:
    """The first such record. What is forged is none, nor what does not continue the record before it."""
    tp, keys, before = layout.tp("decisions", cell), layout.signers.of(cell), ""
    async for record in _all(log, tp):
        if record.value is None or log_record(record, keys).is_forged(version):
            continue
        why, chain = _beyond_us(record, cell), header(record, CHAIN_HEADER)
        continues = not before or chain == next_chain(before, record.value)
        if why is not None and (continues or isinstance(why, OfAnotherRelease)):
            return record, why
        before = chain
    return None


async def _in_snapshots(log: Log, layout: Layout, cell: str, snapshot: str) -> tuple[Record, Undecodable] | None:
    """The first such record that stands behind the last manifest of this snapshot and is not void."""
    behind: dict[bytes | None, tuple[Record, Undecodable]] = {}
    async for record in _all(log, layout.tp("snapshots", cell)):
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


async def _all(log: Log, tp: TopicPartition) -> AsyncIterator[Record]:
    """The records of a partition, without those that are damaged."""
    start, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    while start < end:
        try:
            async with aclosing(records_between(log, {tp: start}, {tp: end})) as records:
                async for record in records:
                    start = record.offset + 1
                    yield record
            break
        except UnreadableRecords as error:
            start = max(error.begin, start + 1)
