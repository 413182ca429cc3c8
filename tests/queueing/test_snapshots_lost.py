"""Snapshots that are gone from their topic, or that the log no longer goes back to, while queueing has the state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from fallow.services.queueing.app.snapshots import Looks, Pace
from fallow.services.queueing.app.snapshots_lost import Lost
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from fallow.shared.log.snapshots import NoUsableSnapshot, read_catalogue
from fallow.shared.runtime.process import Context
from tests.contract.eventually import eventually
from tests.queueing.queueing_world import LAYOUT, Cell, HandHost, RefusingLog
from tests.queueing.test_keeping import one_decision_and_a_forged_one
from tests.queueing.test_what_is_lost import keep
from tests.signing import WRITERS, believing, public

DECISIONS_TP, SNAPSHOTS_TP = ("t.decisions", 0), ("t.snapshots", 0)
LOOK_EVERY_MS = "fallow.services.queueing.app.snapshots.LOOK_EVERY_MS"


class LosingLog(RefusingLog):
    """A log that acknowledges snapshots while it holds none of them, for as long as it is told to."""

    is_losing = False

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Those of other topics are written."""
        await super().publish([each for each in messages if each.topic != SNAPSHOTS_TP[0] or not self.is_losing])


class SlowLog(RefusingLog):
    """A log on which each record of a snapshot takes a second of this host."""

    def __init__(self, broker: MemoryBroker, host: HandHost) -> None:
        super().__init__(broker)
        self._host = host

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Raises nothing."""
        if any(each.topic == SNAPSHOTS_TP[0] for each in messages):
            self._host.now_ms += 1_000
        await super().publish(messages)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are often, and the log is polled often enough for them."""
    monkeypatch.setattr(LOOK_EVERY_MS, 100)
    monkeypatch.setattr("fallow.services.queueing.app.cell.POLL_WAIT_MS", 50)


async def version_kept(cell: Cell) -> int | None:
    state = await cell.snapshot()
    return None if state is None else state.version


async def is_kept(cell: Cell, version: int) -> bool:
    return cell.broker.partition(SNAPSHOTS_TP).end > 0 and await version_kept(cell) == version


def empty(cell: Cell) -> None:
    """The topic is deleted and made again."""
    cell.broker.cut(SNAPSHOTS_TP, 0)


async def next_start(cell: Cell) -> Follower:
    """What a process knows that starts now."""
    follower = Follower(MemoryLog(cell.broker), cell.layout, "main")
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    return follower


@pytest.mark.parametrize("is_by_age", [False, True])
async def test_a_cell_at_rest_whose_snapshots_are_gone_gets_one_at_once(*, is_by_age: bool) -> None:
    cell = Cell()
    cell.enqueue("a", "b")
    cell.enqueue("c")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 2))
        cell.broker.delete_before(DECISIONS_TP, 2)  # as retention does
        end = cell.broker.partition(SNAPSHOTS_TP).end
        if is_by_age:
            cell.broker.delete_before(SNAPSHOTS_TP, end)
        else:
            empty(cell)
            end = 0
        await eventually(lambda: cell.broker.partition(SNAPSHOTS_TP).end > end)
        await eventually(lambda: is_kept(cell, 2))
        await eventually(lambda: context.health.waiting_for is None)
        assert context.registry.get_sample_value("fallow_snapshots_lost_total", {"cell": "main"}) == 1
    assert sorted((await next_start(cell)).state.jobs) == ["a", "b", "c"]


async def test_a_process_that_has_written_none_itself_notices_it_too() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1):
        await eventually(lambda: is_kept(cell, 1))
    cell.broker.delete_before(DECISIONS_TP, 1)
    async with cell.planned() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        empty(cell)
        await eventually(lambda: is_kept(cell, 1))


async def test_until_it_is_written_the_process_is_not_ready_and_says_why() -> None:
    cell = Cell()
    cell.log = log = LosingLog(cell.broker)
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 1))
        log.is_losing = True
        empty(cell)
        await eventually(lambda: "its snapshots are gone: topic snapshots" in (context.health.waiting_for or ""))
        log.is_losing = False
        await eventually(lambda: is_kept(cell, 1))
        await eventually(lambda: context.health.waiting_for is None)


async def test_an_orderly_stop_writes_one_where_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOK_EVERY_MS, 3_600_000)
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 1))
        cell.broker.delete_before(DECISIONS_TP, 1)
        empty(cell)
        context.stopping.set()
        await eventually(lambda: is_kept(cell, 1))
    assert sorted((await next_start(cell)).state.jobs) == ["a"]


async def test_an_orderly_stop_writes_nothing_where_all_is_well() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 1))
        end = cell.broker.partition(SNAPSHOTS_TP).end
        context.stopping.set()
    assert cell.broker.partition(SNAPSHOTS_TP).end == end


async def test_a_log_that_was_cut_past_its_newest_snapshot_gets_another_one() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1):
        await eventually(lambda: is_kept(cell, 1))
    async with cell.planned() as context:
        cell.enqueue("b")
        cell.enqueue("c")
        await eventually(lambda: context.health.progress.version.get("main") == 3)
        assert await version_kept(cell) == 1, "none is due for long"
        cell.broker.delete_before(DECISIONS_TP, 2)
        await eventually(lambda: cell.broker.partition(SNAPSHOTS_TP).end > 0)
        await eventually(lambda: has_started(cell, 3))


async def has_started(cell: Cell, version: int) -> bool:
    try:
        return (await next_start(cell)).state.version == version
    except NoUsableSnapshot:
        return False  # nothing starts before the snapshot is there


async def test_none_is_written_of_a_state_that_the_log_does_not_reach() -> None:
    """All topics were emptied: the state is that of another log, and who begins with it would be fenced."""
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 1))
        cell.broker.cut(DECISIONS_TP, 0)
        empty(cell)
        context.stopping.set()
    assert cell.broker.partition(SNAPSHOTS_TP).end == 0


async def test_a_snapshot_that_was_torn_is_written_anew() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: is_kept(cell, 1))
        before = digest_of((await next_start(cell)).state)
        cell.broker.cut(SNAPSHOTS_TP, 1)
        await eventually(lambda: is_kept(cell, 1))
        assert digest_of((await next_start(cell)).state) == before
        assert context.registry.get_sample_value("fallow_snapshots_lost_total", {"cell": "main"}) == 1


async def test_what_is_written_anew_stands_in_the_slot_of_its_hour_as_well() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned(snapshot_versions=1):
        await eventually(lambda: is_kept(cell, 1))
        slots = await slots_held(cell)
        assert len(slots) == 2
        empty(cell)
        await eventually(lambda: is_kept(cell, 1))
    assert await slots_held(cell) == slots


async def slots_held(cell: Cell) -> set[str]:
    return set((await read_catalogue(MemoryLog(cell.broker), LAYOUT, "main")).manifests)


async def test_where_the_log_begins_among_forged_records_the_snapshot_written_anew_reaches_to_there() -> None:
    """The one that is there is of the same state, and whole: only its place no longer serves."""
    cell = Cell(believing(LAYOUT, public(WRITERS), cell="main"))
    first, forged = one_decision_and_a_forged_one()
    for record in (first, forged, forged):
        cell.broker.write(record)
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: context.health.progress.cursors.get("t.decisions/0") == 3)
        await eventually(lambda: is_at(cell, 0))
        cell.broker.delete_before(DECISIONS_TP, 2)
        await eventually(lambda: is_at(cell, 1))
        await eventually(lambda: context.health.waiting_for is None)


async def is_at(cell: Cell, offset: int) -> bool:
    newest = (await read_catalogue(MemoryLog(cell.broker), LAYOUT, "main")).newest_whole()
    return newest is not None and newest.offset == offset


async def known_as_lost(cell: Cell, host: HandHost, context: Context[QueueingSettings]) -> None:
    """A snapshot takes some seconds, and is gone right behind that: none is written yet, for the rest is long."""
    await eventually(lambda: is_kept(cell, 3))
    await eventually(lambda: context.registry.get_sample_value("fallow_snapshots_total", {"cell": "main"}) == 1)
    empty(cell)
    host.now_ms += 100
    await eventually(lambda: "its snapshots are gone" in (context.health.waiting_for or ""))


def slow_cell() -> tuple[Cell, HandHost]:
    """A cell of three decisions, on a log and a host of which the test says how long things take."""
    cell, host = Cell(), HandHost()
    cell.host, cell.log = host, SlowLog(cell.broker, host)
    for job in "abc":
        cell.enqueue(job)
    return cell, host


async def two_turns(cell: Cell, context: Context[QueueingSettings]) -> None:
    """One more decision is folded, the loop turns, and one more is folded."""
    for version, job in ((4, "d"), (5, "e")):
        cell.enqueue(job)
        await eventually(lambda at=version: folded_to(context) == at)  # type: ignore[misc]


def folded_to(context: Context[QueueingSettings]) -> int:
    return context.health.progress.version.get("main", 0)


def cuts(cell: Cell) -> int:
    """How often a snapshot was begun."""
    return cell.host.beside_the_loop.count("snapshots of main")


async def test_before_one_that_is_gone_is_written_anew_there_is_a_rest() -> None:
    cell, host = slow_cell()
    async with cell.planned(snapshot_versions=3) as context:
        await known_as_lost(cell, host, context)
        await two_turns(cell, context)
        assert cuts(cell) == 1
        host.now_ms += 60_000
        await eventually(lambda: is_kept(cell, 5))
        assert cuts(cell) == 2


async def test_what_was_lost_before_another_process_had_the_cell_is_not_written_again() -> None:
    cell, host = slow_cell()
    async with cell.planned(snapshot_versions=3) as context:
        await known_as_lost(cell, host, context)
        cell.tenure.change(holds=False)
        await keep(cell)
        cell.tenure.change(holds=True)
        host.now_ms += 60_000
        await two_turns(cell, context)
        assert cuts(cell) == 1
        assert context.health.waiting_for is None


async def test_nothing_is_deleted_behind_a_snapshot_that_the_topic_does_not_hold() -> None:
    cell = Cell()
    stamps = count(1)
    cell.retention_ms, cell.broker.now_ms = 0, lambda: next(stamps)
    cell.log = log = LosingLog(cell.broker)
    log.is_losing = True
    cell.enqueue("a")
    cell.enqueue("b")
    async with cell.planned(snapshot_versions=1) as context:
        await eventually(lambda: "its snapshots are gone" in (context.health.waiting_for or ""))
        assert cell.broker.partition(DECISIONS_TP).begin == 0
        log.is_losing = False
        await eventually(lambda: cell.broker.partition(DECISIONS_TP).begin > 0)
    assert (await next_start(cell)).state.version == 2


def test_looks_that_take_long_are_followed_by_a_long_rest() -> None:
    looks = Looks(0)
    looks.done(Lost(3, "gone"), begin_ms=1_000, now_ms=2_000)
    assert looks.next_ms == 2_000 + 20_000
    assert looks.lost == Lost(3, "gone")


def test_a_pace_tells_when_another_one_may_take_as_long() -> None:
    pace = Pace(versions=10, wall_ms=1_000, version=5, at_ms=0)
    pace.written(5, begin_ms=5_000, now_ms=6_000)
    assert not pace.has_rested(25_999)
    assert pace.has_rested(26_000)


@pytest.mark.parametrize("name", ["fallow_snapshots_lost_total", "fallow_snapshot_failures_total"])
async def test_of_snapshots_that_are_well_there_is_a_0_from_the_start(name: str) -> None:
    cell = Cell()
    async with cell.planned() as context:
        await eventually(lambda: context.registry.get_sample_value(name, {"cell": "main"}) == 0)
