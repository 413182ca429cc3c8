"""Reads and writes snapshots of a cell's state, in the cell's partition of the compacted topic `snapshots`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import OfAnotherRelease
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.snapshots import SnapshotChunk, SnapshotManifest
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import (
    NEWEST,
    Catalogue,
    Collector,
    Cut,
    DamagedSnapshot,
    RowsDigest,
    Whole,
    build,
    chunk_of_key,
    cut_as_read,
)
from fallow.shared.log.port import Log, Outgoing, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import event_of, number
from fallow.shared.runtime.collector import loading

CHUNKS_HEADER = "chunks-from"
"""Header of a manifest: the offset from which on its chunks stand."""

WINDOW_FIRST = 512
"""So many records of the end of the partition are searched for a whole snapshot at first, then four times as many."""

POLL_RECORDS = 64
IDLE_POLLS_MAX = 20
POLL_WAIT_MS = 250
TOMBSTONES_AT_ONCE = 500

logger = logging.getLogger(__name__)


class NoUsableSnapshot(Exception):
    """The log no longer begins at its first record, and no whole snapshot reaches to where it begins."""


class OtherReleasesSnapshots(NoUsableSnapshot):
    """The snapshots that would reach there are those of another release."""


async def newest_snapshot(log: Log, layout: Layout, cell: str, service: str = "") -> CellState | None:
    """The state of the newest whole snapshot from which the decision log can still be followed, or None to begin at 0.
    `service` names the service that loads it: what each loads first is set aside from the collector of garbage.

    One that cannot be read, as it may be after an upgrade that was taken back, is passed over: the log is the truth.
    Raises DamagedSnapshot where no older one can be read either, NoUsableSnapshot when the log cannot be followed from
    0; LogUnavailable.
    """
    decisions = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([decisions]))[decisions]
    whole = await _newest_whole(log, layout, cell, begin)
    if whole is not None and whole.manifest.offset + 1 >= begin:
        try:
            return await _built(whole, service)
        except DamagedSnapshot as error:
            return await _before_the_unreadable(log, layout, cell, error, service)
    if begin == 0:
        return None
    found = (
        await _none_whole(log, layout.tp("snapshots", cell))
        if whole is None
        else NoUsableSnapshot(f"the newest whole snapshot ends at {whole.manifest.offset}")
    )
    raise type(found)(f"cell {cell}: the decision log begins at {begin}, and {found}: what lies between is lost")


async def newest_manifest(log: Log, layout: Layout, cell: str) -> SnapshotManifest | None:
    """The manifest of that snapshot, which is not read; None to begin at 0. Raises as `newest_snapshot` does."""
    decisions = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([decisions]))[decisions]
    whole = await _newest_whole(log, layout, cell, begin)
    if whole is not None and whole.manifest.offset + 1 >= begin:
        return whole.manifest
    if begin:
        raise await _none_whole(log, layout.tp("snapshots", cell))
    return None


async def _none_whole(log: Log, tp: TopicPartition) -> NoUsableSnapshot:
    """That no snapshot is whole; and which release is to be asked, where another one wrote what stands last."""
    end, found = (await log.end_offsets([tp]))[tp], "there is no whole snapshot"
    async for record in _records(log, tp, max(0, end - 1), end):
        event = event_of(record)
        if isinstance(event, OfAnotherRelease):
            why = f'{found} that this release reads ({event}; docs/operations.md, "Upgrade it")'
            return OtherReleasesSnapshots(why)
    return NoUsableSnapshot(found)


async def _before_the_unreadable(
    log: Log, layout: Layout, cell: str, error: DamagedSnapshot, service: str
) -> CellState | None:
    """The state of the newest snapshot that can be read, or None to begin at 0. Raises the error where neither is."""
    decisions = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([decisions]))[decisions]
    try:
        state = await first_readable(log, layout, cell, (await _usable(log, layout, cell, begin))[::-1], service)
    except DamagedSnapshot:
        state = None
    if state is not None:
        logger.warning("cell %s goes on from version %d: %s", cell, state.version, error)
        return state
    if begin == 0 and await begins_with_the_first_version(log, decisions):
        logger.warning("cell %s goes on from the beginning of its log: %s", cell, error)
        return None
    raise error


async def oldest_snapshot(log: Log, layout: Layout, cell: str) -> CellState | None:
    """The state of the oldest whole snapshot that can be read and from which the decision log can still be followed:
    where an audit begins.

    None to begin at 0. Raises NoUsableSnapshot when there is neither, DamagedSnapshot when none of those that there are
    can be read; LogUnavailable.
    """
    decisions = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([decisions]))[decisions]
    if begin == 0 and await begins_with_the_first_version(log, decisions):
        return None
    # Of a log that is whole only a snapshot is older: the one with which a cell was moved here.
    usable = [m for m in await _usable(log, layout, cell, begin) if begin > 0 or m.offset < 0]
    state = await first_readable(log, layout, cell, usable)
    if state is not None or begin == 0:
        return state
    raise NoUsableSnapshot(f"cell {cell}: the decision log begins at {begin}, and no whole snapshot reaches to there")


async def nearest_snapshot(
    log: Log, layout: Layout, cell: str, is_before: Callable[[SnapshotManifest], bool]
) -> CellState | None:
    """The state of the newest whole snapshot that can be read, is before some moment and can be followed to it.

    None to begin at 0. Raises NoUsableSnapshot when there is neither, DamagedSnapshot when none of those that there are
    can be read; LogUnavailable.
    """
    decisions = layout.tp("decisions", cell)
    begin = (await log.begin_offsets([decisions]))[decisions]
    usable = await _usable(log, layout, cell, begin)
    from_begin = begin == 0 and all(m.offset >= 0 for m in usable)
    try:
        state = await first_readable(log, layout, cell, [m for m in usable if is_before(m)][::-1])
    except DamagedSnapshot:
        if not from_begin:
            raise
        state = None
    if state is not None or from_begin:
        return state
    raise NoUsableSnapshot(f"cell {cell}: what was then is not kept: the log and its snapshots begin later")


async def _usable(log: Log, layout: Layout, cell: str, begin: int) -> list[SnapshotManifest]:
    """The manifests of the snapshots that the log can be followed from, the oldest first."""
    catalogue = await read_catalogue(log, layout, cell)
    usable = {m.snapshot: m for m in catalogue.manifests.values() if m.offset + 1 >= begin}
    return sorted(usable.values(), key=lambda found: (found.offset, found.version, found.snapshot))


async def begins_with_the_first_version(log: Log, tp: TopicPartition) -> bool:
    """Whether a log that is there from its first record begins with the first version: that of a cell that was moved
    here goes on from a snapshot.
    """
    end = (await log.end_offsets([tp]))[tp]
    if end == 0:
        return False
    async for record in _records(log, tp, 0, 1):
        event = event_of(record)
        return isinstance(event, Decision) and event.version == 1
    return False


async def first_readable(
    log: Log, layout: Layout, cell: str, manifests: Sequence[SnapshotManifest], service: str = ""
) -> CellState | None:
    """The state of the first of these snapshots that is whole and can be read; None where none is whole.

    Raises DamagedSnapshot where of those that are whole none can be read, LogUnavailable. No more than two of them are
    in memory at a time.
    """
    damaged = None
    async with aclosing(_wholes(log, layout.tp("snapshots", cell), manifests)) as wholes:
        async for whole in wholes:
            try:
                return await _built(whole, service)
            except DamagedSnapshot as error:
                damaged = damaged or error
    if damaged is not None:
        raise damaged
    return None


async def _wholes(log: Log, tp: TopicPartition, manifests: Sequence[SnapshotManifest]) -> AsyncGenerator[Whole, None]:
    """Those of these snapshots that are whole, in this order."""
    spans = await _spans(log, tp, {m.snapshot for m in manifests}) if manifests else {}
    for manifest in {m.snapshot: m for m in manifests}.values():
        if manifest.snapshot not in spans:
            continue
        collector, (first, last) = Collector(), spans[manifest.snapshot]
        async for record in _records(log, tp, first, last + 1):
            event = None if record.value is None else event_of(record)
            if isinstance(event, SnapshotChunk) and event.snapshot == manifest.snapshot:
                collector.add_chunk(event)
        collector.add_manifest(manifest)
        if collector.newest is not None:
            yield collector.newest


async def _spans(log: Log, tp: TopicPartition, names: AbstractSet[str]) -> dict[str, tuple[int, int]]:
    """The offsets of the first and the last chunk of each of these snapshots, from reading the partition once."""
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    found: dict[str, tuple[int, int]] = {}
    async for record in _records(log, tp, begin, end):
        name, part = chunk_of_key((record.key or b"").decode("utf-8", "backslashreplace"))
        if part is not None and record.value is not None and name in names:
            found[name] = (found.get(name, (record.offset,))[0], record.offset)
    return found


async def _built(whole: Whole, service: str = "") -> CellState:
    """The state of a snapshot. The loop turns meanwhile, so that no heartbeat is missed over a large one."""
    state = CellState(whole.manifest.cell)
    with loading(f"{service}: state of {whole.manifest.cell}"):
        for _ in build(state, whole):
            await asyncio.sleep(0)
    return state


async def _newest_whole(log: Log, layout: Layout, cell: str, log_begin: int) -> Whole | None:
    """Follows the manifest that stands last. Only where that leads nowhere (a snapshot was being written, or the log no
    longer goes back to it) looks at the end of the partition. Where the log cannot be followed from what stands there,
    or it was made void, it is the newest whole one of all that the partition holds: a repair begins with that, too.
    """
    tp = layout.tp("snapshots", cell)
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    whole = await _last_named(log, tp, end) if begin < end else None
    if whole is not None and whole.manifest.offset + 1 >= log_begin:
        return whole
    whole = await _newest_at_the_end(log, tp, begin, end)
    if whole is not None and whole.manifest.offset + 1 >= log_begin:
        return whole
    usable = (await _usable(log, layout, cell, log_begin))[::-1]
    async with aclosing(_wholes(log, tp, usable)) as wholes:
        return await anext(wholes, whole)


async def _newest_at_the_end(log: Log, tp: TopicPartition, begin: int, end: int) -> Whole | None:
    """The newest whole snapshot of the end of the partition, and of more of it where there is none."""
    window = WINDOW_FIRST
    while begin < end:
        start = max(begin, end - window)
        collector = Collector()
        async for record in _records(log, tp, start, end):
            _collect(collector, record)
        if collector.newest is not None or start == begin:
            return collector.newest
        window *= 4
    return None


async def _last_named(log: Log, tp: TopicPartition, end: int) -> Whole | None:
    """The snapshot whose manifest is the last record, if it tells where its chunks begin and all of them are there."""
    begun: tuple[SnapshotManifest, int] | None = None
    async for record in _records(log, tp, end - 1, end):
        event, first = event_of(record) if record.value else None, number(record, CHUNKS_HEADER)
        if isinstance(event, SnapshotManifest) and first is not None:
            begun = (event, first)
    if begun is None:
        return None
    manifest, first_chunk = begun
    collector, missing = Collector(), manifest.parts
    async for record in _records(log, tp, max(first_chunk, (await log.begin_offsets([tp]))[tp]), end):
        event = event_of(record) if record.value else None
        if isinstance(event, SnapshotChunk) and event.snapshot == manifest.snapshot:
            collector.add_chunk(event)
            missing -= 1
        if not missing:
            break
    collector.add_manifest(manifest)
    return collector.newest


def _collect(collector: Collector, record: Record) -> None:
    if record.value is None:
        collector.add_tombstone((record.key or b"").decode("utf-8", "backslashreplace"))
        return
    event = event_of(record)
    if isinstance(event, SnapshotChunk):
        collector.add_chunk(event)
    elif isinstance(event, SnapshotManifest):
        collector.add_manifest(event)


async def _records(log: Log, tp: TopicPartition, start: int, end: int) -> AsyncIterator[Record]:
    """The records from `start` to before `end`, as far as compaction has left them.

    What cannot be read is passed over, and said: a snapshot that misses a part is none, and the log is the truth.
    Where the last offsets before `end` are compacted away, the position may never reach it: then long silence is the
    end, if the log still answers. Raises LogUnavailable if it does not.
    """
    reader, idle = log.reader({tp: start}), 0
    await reader.start()
    try:
        while reader.positions()[tp] < end and idle < IDLE_POLLS_MAX:
            try:
                records = await reader.poll(POLL_RECORDS, POLL_WAIT_MS)
            except UnreadableRecords as error:
                logger.warning("passed over: %s", error)
                reader.seek(tp, error.begin)
                continue
            idle = 0 if records else idle + 1
            for record in records:
                if record.offset >= end:
                    return
                yield record
        await log.end_offsets([tp])
    finally:
        await reader.stop()


async def manifest_at_the_end(log: Log, layout: Layout, cell: str) -> SnapshotManifest | None:
    """The manifest that is the last record of the cell's partition, if that still goes back to its first chunk. None
    where anything else stands there: what the partition holds, only `read_catalogue` tells. Raises LogUnavailable.

    For a look now and then: it costs a fetch of one record.
    """
    tp = layout.tp("snapshots", cell)
    end = (await log.end_offsets([tp]))[tp]
    record = (await log.last_before({tp: end})).get(tp) if end else None
    if record is None or record.value is None:
        return None
    event, first = event_of(record), number(record, CHUNKS_HEADER)
    if not isinstance(event, SnapshotManifest) or event.cell != cell or first is None:
        return None
    return event if (await log.begin_offsets([tp]))[tp] <= first else None


async def read_catalogue(log: Log, layout: Layout, cell: str) -> Catalogue:
    """What the cell's partition holds now. Raises LogUnavailable."""
    tp, catalogue = layout.tp("snapshots", cell), Catalogue()
    begin, end = (await log.begin_offsets([tp]))[tp], (await log.end_offsets([tp]))[tp]
    if begin == end:
        return catalogue
    async for record in _records(log, tp, begin, end):
        _note(catalogue, record, cell)
    return catalogue


def _note(catalogue: Catalogue, record: Record, cell: str) -> None:
    key = (record.key or b"").decode("utf-8", "backslashreplace")
    snapshot, part = chunk_of_key(key)
    if record.value is None:
        catalogue.drop_key(key)
    elif part is not None:
        catalogue.add_chunk(snapshot, part)
    else:
        event = event_of(record)
        if isinstance(event, SnapshotManifest) and event.cell == cell:
            catalogue.add_manifest(event)
        elif isinstance(event, SnapshotManifest):
            catalogue.foreign[key] = event


async def write_snapshot(
    log: Log,
    layout: Layout,
    state: CellState,
    catalogue: Catalogue,
    *,
    writer: str,
    wall_ms: int,
    more_slots: tuple[str, ...] = (),
) -> SnapshotManifest:
    """Write a snapshot of the state, which must not change meanwhile. Raises LogUnavailable."""
    cut = cut_as_read(state, writer)
    return await write_cut(log, layout, cut, catalogue, writer=writer, wall_ms=wall_ms, more_slots=more_slots)


async def write_cut(
    log: Log,
    layout: Layout,
    cut: Cut,
    catalogue: Catalogue,
    *,
    writer: str,
    wall_ms: int,
    more_slots: tuple[str, ...] = (),
) -> SnapshotManifest:
    """Write a snapshot: its chunks, then its manifest, then tombstones for what it made superfluous.

    After an error nothing is lost: what is half written has no manifest, and is swept up behind a later snapshot.
    Raises LogUnavailable.
    """
    cell, snapshot, digest, parts = cut.head.cell, cut.head.snapshot, RowsDigest(), 0
    tp = layout.tp("snapshots", cell)
    chunks_from = ((CHUNKS_HEADER, str((await log.end_offsets([tp]))[tp]).encode()),)
    for chunk in cut.chunks:
        digest.add(chunk.rows)
        catalogue.add_chunk(snapshot, chunk.part)
        # One at a time: the loop goes on between two chunks, and no more than one is there as a record, too.
        await log.publish([layout.outgoing(chunk, id=f"{snapshot}/{chunk.part}", source=writer, wall_ms=wall_ms)])
        parts += 1

    async def publish_manifest(slot: str) -> SnapshotManifest:
        manifest = replace(cut.head, slot=slot, parts=parts, digest=digest.hexdigest())
        name = f"{snapshot}/{slot}"
        await log.publish([layout.outgoing(manifest, id=name, source=writer, wall_ms=wall_ms, more=chunks_from)])
        return manifest

    for slot in (*more_slots, *catalogue.slots_for(cut.head.at_ms)):
        catalogue.add_manifest(await publish_manifest(slot))
    if await _sweep(log, layout, cell, catalogue):
        await publish_manifest(NEWEST)  # again, so that it stands last: who loads it begins there
    return catalogue.manifests[NEWEST]


async def _sweep(log: Log, layout: Layout, cell: str, catalogue: Catalogue) -> int:
    """How many records were made void."""
    topic, partition = layout.tp("snapshots", cell)
    keys = catalogue.superfluous(cell)
    for start in range(0, len(keys), TOMBSTONES_AT_ONCE):
        some = keys[start : start + TOMBSTONES_AT_ONCE]
        await log.publish([Outgoing(topic, None, key.encode(), partition=partition) for key in some])
        for key in some:
            catalogue.drop_key(key)
    return len(keys)
