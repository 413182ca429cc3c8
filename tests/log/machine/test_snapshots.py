"""Snapshots on a log: which one is loaded, and what stays of those before."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import pytest

from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.events.snapshots import SnapshotChunk
from fallow.shared.log import snapshots
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine import snapshot as machine
from fallow.shared.log.machine.snapshot import (
    NEWEST,
    DamagedSnapshot,
    RowsDigest,
    cut,
    hour_slot,
    manifest_of,
    snapshot_id,
)
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Reader, TopicPartition
from fallow.shared.log.snapshots import NoUsableSnapshot, nearest_snapshot, newest_snapshot, oldest_snapshot
from tests.histories import CELL, History, outgoing
from tests.log.worlds.snapshot_world import TOPICS, all_records, layout_of, snapshot

LAYOUT = layout_of("fallow")


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    return broker


@pytest.fixture
def log(broker: MemoryBroker) -> MemoryLog:
    return MemoryLog(broker)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CHUNK_BYTES_MAX", 2_000)
    monkeypatch.setattr(snapshots, "WINDOW_FIRST", 4)


async def half_written(log: MemoryLog, layout: Layout, history: History) -> None:
    name = snapshot_id(history.state, "dead")
    for chunk in list(cut(history.state, name))[:-1]:
        await log.publish([layout.outgoing(chunk, id=str(chunk.part), source="dead", wall_ms=0)])


async def test_without_a_snapshot_the_log_is_read_from_its_beginning(log: MemoryLog) -> None:
    assert await newest_snapshot(log, LAYOUT, CELL) is None


@pytest.mark.usefixtures("small")
async def test_the_state_that_is_loaded_is_the_one_that_was_written(log: MemoryLog) -> None:
    history = History(11)
    for _ in range(4):
        history.decisions(20)
        await snapshot(log, LAYOUT, history.state)
        loaded = await newest_snapshot(log, LAYOUT, CELL)
        assert loaded is not None
        assert digest_of(loaded) == digest_of(history.state)


class Watched(MemoryLog):
    """Remembers from where it was read."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.read_from: list[int] = []

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        self.read_from += positions.values()
        return super().reader(positions, patient_ms=patient_ms)


@pytest.mark.usefixtures("small")
async def test_of_the_newest_snapshot_nothing_is_read_but_its_own_chunks(log: MemoryLog, broker: MemoryBroker) -> None:
    history, watched, tp = History(11), Watched(broker), LAYOUT.tp("snapshots", CELL)
    for _ in range(3):
        history.decisions(20)
        begin = (await log.end_offsets([tp]))[tp]
        await snapshot(log, LAYOUT, history.state)
    loaded = await newest_snapshot(watched, LAYOUT, CELL)
    assert loaded is not None
    assert digest_of(loaded) == digest_of(history.state)
    assert watched.read_from == [(await log.end_offsets([tp]))[tp] - 1, begin]


@pytest.mark.usefixtures("small")
async def test_a_snapshot_that_was_never_finished_is_passed_over(log: MemoryLog) -> None:
    history = History(12)
    history.decisions(30)
    await snapshot(log, LAYOUT, history.state)
    before = digest_of(history.state)
    history.decisions(30)
    await half_written(log, LAYOUT, history)
    loaded = await newest_snapshot(log, LAYOUT, CELL)
    assert loaded is not None
    assert digest_of(loaded) == before


@pytest.mark.usefixtures("small")
async def test_what_a_snapshot_replaces_is_tombstoned_and_so_is_what_was_never_finished(log: MemoryLog) -> None:
    history = History(13)
    history.decisions(10)
    for number in range(4):
        history.decisions(1)
        await snapshot(log, LAYOUT, history.state, writer=f"w{number}")
    await half_written(log, LAYOUT, history)
    await snapshot(log, LAYOUT, history.state, writer="last")
    kept = {record.key: record.value for record in await all_records(log, LAYOUT)}
    manifests = [key for key, value in kept.items() if value is not None and b"parts" in value]
    names = {key.split(b"/")[1] for key, value in kept.items() if key and value is not None and key not in manifests}
    hours = {key for key in manifests if key and b"hour" in key}
    assert len(names) <= len(hours) + 1
    assert f"{history.state.offset}-last".encode() in names
    assert f"{history.state.offset}-dead".encode() not in names


async def test_a_follower_goes_on_behind_the_snapshot(log: MemoryLog, broker: MemoryBroker) -> None:
    history = History(14)
    decisions = history.decisions(30)
    await snapshot(log, LAYOUT, history.state)
    await log.publish(outgoing(LAYOUT, decisions + history.decisions(10)))
    broker.delete_before(LAYOUT.tp("decisions", CELL), 30)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(history.state)


async def test_the_first_state_that_each_service_of_a_process_loads_is_set_aside_from_the_collector_of_garbage(
    log: MemoryLog,
) -> None:
    history = History(14)
    history.decisions(10)
    await snapshot(log, LAYOUT, history.state)
    try:
        for service in ("one service", "another service"):
            follower = Follower(log, LAYOUT, CELL, service=service)
            await follower.start()
            assert all(found is not follower.state for found in gc.get_objects())
    finally:
        gc.unfreeze()


async def test_a_log_that_lost_its_beginning_needs_a_snapshot(log: MemoryLog, broker: MemoryBroker) -> None:
    history = History(15)
    decisions = history.decisions(30)
    await log.publish(outgoing(LAYOUT, decisions))
    broker.delete_before(LAYOUT.tp("decisions", CELL), 1)
    with pytest.raises(NoUsableSnapshot, match="begins at 1, and there is no whole snapshot"):
        await newest_snapshot(log, LAYOUT, CELL)


async def test_a_snapshot_that_ends_before_the_log_begins_is_of_no_use(log: MemoryLog, broker: MemoryBroker) -> None:
    history = History(16)
    decisions = history.decisions(10)
    await snapshot(log, LAYOUT, history.state)
    await log.publish(outgoing(LAYOUT, decisions + history.decisions(10)))
    broker.delete_before(LAYOUT.tp("decisions", CELL), 10)
    usable = await newest_snapshot(log, LAYOUT, CELL)
    assert usable is not None
    assert usable.offset == 9
    broker.delete_before(LAYOUT.tp("decisions", CELL), 11)
    with pytest.raises(NoUsableSnapshot, match="begins at 11, and the newest whole snapshot ends at 9"):
        await newest_snapshot(log, LAYOUT, CELL)


async def unreadable(log: MemoryLog, history: History, slot: str = NEWEST) -> None:
    """A snapshot of this state that another release wrote: whole, and with a section that this one does not know."""
    name, digest = snapshot_id(history.state, "newer"), RowsDigest()
    chunk = SnapshotChunk(cell=CELL, snapshot=name, part=0, rows=('["section-of-tomorrow",1]',))
    digest.add(chunk.rows)
    manifest = manifest_of(history.state, name, slot=slot, parts=1, digest=digest.hexdigest())
    for event in (chunk, manifest):
        await log.publish([LAYOUT.outgoing(event, id=name, source="newer", wall_ms=0)])


@pytest.mark.parametrize("is_older", [True, False])
async def test_a_snapshot_that_cannot_be_read_leads_to_the_one_before_it_or_to_the_beginning(
    log: MemoryLog, *, is_older: bool
) -> None:
    history = History(11)
    first = history.decisions(20)
    if is_older:
        await snapshot(log, LAYOUT, history.state)
    digest = digest_of(history.state)
    decisions = [*first, *history.decisions(20)]
    await log.publish(outgoing(LAYOUT, decisions))
    await unreadable(log, history)
    loaded = await newest_snapshot(log, LAYOUT, CELL)
    assert (None if loaded is None else digest_of(loaded)) == (digest if is_older else None)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(history.state)
    await follower.stop()


async def test_a_snapshot_that_cannot_be_read_ends_the_reader_where_there_is_no_other_and_no_beginning(
    log: MemoryLog, broker: MemoryBroker
) -> None:
    history = History(11)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    await unreadable(log, history)
    broker.delete_before(LAYOUT.tp("decisions", CELL), 20)
    with pytest.raises(DamagedSnapshot, match="section-of-tomorrow"):
        await newest_snapshot(log, LAYOUT, CELL)


async def between(log: MemoryLog, broker: MemoryBroker, *, is_oldest: bool) -> str:
    """Two snapshots, of which the older or the newer cannot be read, of a log that begins with the older. The digest of
    the state of the one that can be read.
    """
    history = History(11)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    if is_oldest:
        await unreadable(log, history, hour_slot(history.state.at_ms))
    else:
        await snapshot(log, LAYOUT, history.state)
    digest = digest_of(history.state)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    if is_oldest:
        await snapshot(log, LAYOUT, history.state)
        digest = digest_of(history.state)
    else:
        await unreadable(log, history)
    await log.publish(outgoing(LAYOUT, history.decisions(5)))
    broker.delete_before(LAYOUT.tp("decisions", CELL), 20)
    return digest


@pytest.mark.parametrize("is_oldest", [True, False])
async def test_whoever_looks_for_a_snapshot_passes_over_one_that_cannot_be_read(
    log: MemoryLog, broker: MemoryBroker, *, is_oldest: bool
) -> None:
    digest = await between(log, broker, is_oldest=is_oldest)
    for found in (
        await newest_snapshot(log, LAYOUT, CELL),
        await oldest_snapshot(log, LAYOUT, CELL),
        await nearest_snapshot(log, LAYOUT, CELL, lambda _: True),
    ):
        assert found is not None
        assert digest_of(found) == digest


async def test_where_none_can_be_read_that_is_said(log: MemoryLog, broker: MemoryBroker) -> None:
    history = History(11)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    await unreadable(log, history)
    assert await nearest_snapshot(log, LAYOUT, CELL, lambda _: True) is None, "the log is there from its beginning"
    broker.delete_before(LAYOUT.tp("decisions", CELL), 20)
    with pytest.raises(DamagedSnapshot, match="section-of-tomorrow"):
        await oldest_snapshot(log, LAYOUT, CELL)
    with pytest.raises(DamagedSnapshot, match="section-of-tomorrow"):
        await nearest_snapshot(log, LAYOUT, CELL, lambda _: True)


@pytest.mark.usefixtures("small")
async def test_the_partition_is_not_read_once_for_each_snapshot_that_is_torn(
    log: MemoryLog, broker: MemoryBroker
) -> None:
    watched, tp, history = Watched(broker), LAYOUT.tp("snapshots", CELL), History(11)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    for number in range(5):
        await unreadable(log, history, hour_slot(3_600_000 * number))
        await log.publish(outgoing(LAYOUT, history.decisions(1)))
    await snapshot(log, LAYOUT, history.state)
    broker.delete_before(LAYOUT.tp("decisions", CELL), 20)
    begin = (await log.begin_offsets([tp]))[tp]
    assert await oldest_snapshot(watched, LAYOUT, CELL) is not None
    assert watched.read_from.count(begin) <= 3, "the catalogue, the places of chunks, and its own"


async def test_the_one_before_it_is_used_where_the_log_begins_right_behind_that(
    log: MemoryLog, broker: MemoryBroker
) -> None:
    history = History(11)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    await snapshot(log, LAYOUT, history.state)
    digest = digest_of(history.state)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    await unreadable(log, history)
    await unreadable(log, history)
    broker.delete_before(LAYOUT.tp("decisions", CELL), 20)
    loaded = await newest_snapshot(log, LAYOUT, CELL)
    assert loaded is not None
    assert digest_of(loaded) == digest


async def test_a_cell_that_was_moved_here_with_a_snapshot_that_cannot_be_read_does_not_begin_in_the_middle(
    log: MemoryLog,
) -> None:
    history = History(11)
    history.decisions(20)
    await unreadable(log, history)
    await log.publish(outgoing(LAYOUT, history.decisions(5)))
    with pytest.raises(DamagedSnapshot, match="section-of-tomorrow"):
        await newest_snapshot(log, LAYOUT, CELL)


async def of_an_hour(log: MemoryLog, history: History, hour: int) -> None:
    """A snapshot of this state that is kept for an hour."""
    name, digest, parts = snapshot_id(history.state, f"hour-{hour}"), RowsDigest(), 0
    for chunk in cut(history.state, name):
        digest.add(chunk.rows)
        await log.publish([LAYOUT.outgoing(chunk, id=f"{name}/{parts}", source="w", wall_ms=0)])
        parts += 1
    slot = hour_slot(3_600_000 * hour)
    manifest = manifest_of(history.state, name, slot=slot, parts=parts, digest=digest.hexdigest())
    await log.publish([LAYOUT.outgoing(manifest, id=name, source="w", wall_ms=0)])


async def test_of_several_before_the_one_that_cannot_be_read_it_is_the_newest(log: MemoryLog) -> None:
    history = History(11)
    for hour in (1, 2):
        await log.publish(outgoing(LAYOUT, history.decisions(20)))
        await of_an_hour(log, history, hour)
    digest = digest_of(history.state)
    await log.publish(outgoing(LAYOUT, history.decisions(20)))
    await unreadable(log, history)
    loaded = await newest_snapshot(log, LAYOUT, CELL)
    assert loaded is not None
    assert digest_of(loaded) == digest
