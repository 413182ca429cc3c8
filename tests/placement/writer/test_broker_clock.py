"""A writer whose clock differs from the broker's by more than a bound does not decide."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.app.watch import clock_watch
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import WriterStarted
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.log.machine.broker_clock import BrokerClock
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import AppendAnswer, AppendUnknown, Outgoing
from fallow.shared.log.reading import event_of
from fallow.shared.runtime import clocks
from fallow.shared.runtime.host import Host
from tests.contract.eventually import eventually
from tests.hypothesis_profile import reaches
from tests.placement.worlds.lost_world import LostWorld
from tests.placement.worlds.writers import CELL, LAYOUT, PlacementProcess, RefusedLog, cluster

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MOMENTS = st.integers(0, 10**13)


class Wrong(Host):
    """A machine whose clock is wrong by so much."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self.by_ms = by_ms

    def wall_ms(self) -> int:
        return clocks.wall_ms() + self.by_ms


@pytest.fixture
def world(tmp_path: Path) -> LostWorld:
    return LostWorld(tmp_path, stamps=clocks.wall_ms)


@pytest.mark.parametrize(
    ("by_ms", "words"), [(2 * HOUR_MS, "s ahead of the broker's"), (-40 * DAY_MS, "s behind the broker's")]
)
async def test_a_writer_with_a_wrong_clock_does_not_decide(world: LostWorld, by_ms: int, words: str) -> None:
    world.admit("job-0")
    async with world.placement(host=Wrong(by_ms)) as context:
        await eventually(lambda: words in (context.health.waiting_for or ""))
        assert world.decisions() == []


async def test_a_writer_whose_clock_is_a_little_wrong_decides(world: LostWorld) -> None:
    world.admit("job-0")
    async with world.placement(host=Wrong(5_000)) as context:
        await world.until_enqueued(1)
        assert context.health.waiting_for is None


async def test_a_clock_that_jumps_stops_the_writer_before_it_decides(world: LostWorld) -> None:
    machine = Wrong(0)
    world.admit("job-0")
    async with world.placement(host=machine) as context:
        await world.until_enqueued(1)
        machine.by_ms = 2 * HOUR_MS
        await eventually(lambda: "s ahead of the broker's" in (context.health.waiting_for or ""))
        before = len(world.decisions())
        world.admit("job-1")
        machine.by_ms = 0
    assert len(world.decisions()) == before
    assert all(decision.at_ms < clocks.wall_ms() + HOUR_MS for decision in world.decisions())


async def test_another_process_whose_clock_is_right_takes_the_cell(world: LostWorld) -> None:
    world.admit("job-0")
    async with world.placement(host=Wrong(2 * HOUR_MS)) as context:
        await eventually(lambda: bool(context.health.waiting_for))
        async with world.placement():
            await world.until_enqueued(1)
    starts = [e for decision in world.decisions() for e in decision.effects if isinstance(e, WriterStarted)]
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("by_ms", "words"), [(2 * HOUR_MS, "s ahead of the broker's"), (-40 * DAY_MS, "s behind the broker's")]
)
async def test_a_standby_with_a_wrong_clock_is_not_ready_until_it_is_set(
    world: LostWorld, by_ms: int, words: str
) -> None:
    """It could not take over."""
    world.admit("job-0")
    machine = Wrong(by_ms)
    async with world.placement():
        await world.until_enqueued(1)
        async with world.placement(host=machine) as standby:
            await eventually(lambda: words in (standby.health.waiting_for or ""))
            assert "could not be taken over" in (standby.health.waiting_for or "")
            machine.by_ms = 0
            await eventually(lambda: standby.health.waiting_for is None)
            machine.by_ms = by_ms
            await eventually(lambda: words in (standby.health.waiting_for or ""))
    starts = [e for decision in world.decisions() for e in decision.effects if isinstance(e, WriterStarted)]
    assert len(starts) == 1


async def test_a_standby_whose_clock_is_right_is_ready(world: LostWorld) -> None:
    world.admit("job-0")
    async with world.placement():
        await world.until_enqueued(1)
        async with world.placement() as standby:
            await eventually(lambda: standby.health.waiting_for is None)
            await asyncio.sleep(0.5)
            assert standby.health.waiting_for is None


async def test_a_standby_that_may_not_ask_for_the_brokers_time_is_not_ready(tmp_path: Path) -> None:
    broker = cluster(clocks.wall_ms)
    writer = PlacementProcess(MemoryLog(broker), "one")
    await writer.start()
    await eventually(lambda: broker.partition((LAYOUT.topic("decisions"), 0)).end == 1)
    log = RefusedLog(broker, "cells")
    standby = PlacementProcess(log, "two")
    await standby.start()
    try:
        await eventually(lambda: "no right to write t.cells" in standby.health)
        await asyncio.sleep(0.5)
        assert log.tries[LAYOUT.topic("cells")] == 1, "it asks again only after a while"
        assert writer.health == ""
    finally:
        await standby.stop()
        await writer.stop()


async def test_a_broker_that_stamps_nothing_is_not_asked_for_more(tmp_path: Path) -> None:
    world = LostWorld(tmp_path)
    world.admit("job-0")
    async with world.placement(host=Wrong(2 * HOUR_MS)) as context:
        await world.until_enqueued(1)
        assert context.health.waiting_for is None


class CellsAway(MemoryLog):
    """The leader of topic `cells` is away, and of no other topic."""

    is_away = False

    async def append(self, message: Outgoing) -> AppendAnswer:
        if self.is_away and message.topic == LAYOUT.topic("cells"):
            await asyncio.sleep(0.05)
            return AppendUnknown("no leader for cells/0")
        return await super().append(message)


async def test_a_cell_at_rest_decides_at_once_while_topic_cells_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_watch, "ASK_EVERY_MS", 200)
    broker = cluster(clocks.wall_ms)
    log = CellsAway(broker)
    process = PlacementProcess(log, "one")

    def decided() -> int:
        return broker.partition((LAYOUT.topic("decisions"), 0)).end

    await process.start()
    try:
        await eventually(lambda: decided() == 1)
        log.is_away = True
        await eventually(lambda: b"broker's time is not known" in process.context.health.answer("/readyz")[2])
        job = JobAdmitted(cell=CELL, spec=JobSpec(id="job", tenant="vision"), submit_ms=0, digest="0" * 32)
        broker.write(LAYOUT.outgoing(job, id="x", source="t", wall_ms=0))
        await eventually(lambda: decided() > 1)
        assert process.health == ""
    finally:
        await process.stop()


async def test_a_new_writer_takes_over_and_decides_while_topic_cells_is_away() -> None:
    broker = cluster(clocks.wall_ms)
    log = CellsAway(broker)
    log.is_away = True
    process = PlacementProcess(log, "one")
    await process.start()
    try:
        await eventually(lambda: broker.partition((LAYOUT.topic("decisions"), 0)).end == 1)
        job = JobAdmitted(cell=CELL, spec=JobSpec(id="job", tenant="vision"), submit_ms=0, digest="0" * 32)
        broker.write(LAYOUT.outgoing(job, id="x", source="t", wall_ms=0))
        await eventually(lambda: broker.partition((LAYOUT.topic("decisions"), 0)).end > 1)
        assert process.health == ""
        assert b"broker's time is not known" in process.context.health.answer("/readyz")[2]
    finally:
        await process.stop()


async def test_a_new_writer_with_a_wrong_clock_writes_no_time_of_its_own_while_topic_cells_is_away() -> None:
    broker = cluster(clocks.wall_ms)
    log = CellsAway(broker)
    log.is_away = True
    process = PlacementProcess(log, "one", Wrong(2 * HOUR_MS))
    await process.start()
    try:
        await eventually(lambda: "s ahead of the broker's" in process.health)
        assert decisions_of(broker) == [(0, 1)], "a take-over at the time of the log before it, and nothing else"
    finally:
        await process.stop()


def decisions_of(broker: MemoryBroker) -> list[tuple[int, int]]:
    """The cell time and the epoch of each decision."""
    events = [event_of(record) for record in broker.partition((LAYOUT.topic("decisions"), 0)).records]
    return [(event.at_ms, event.epoch) for event in events if isinstance(event, Decision)]


@given(true_ms=MOMENTS, wrong_ms=st.integers(-(10**10), 10**10), way_ms=st.integers(0, 5_000), later_ms=MOMENTS)
def test_the_difference_is_told_to_within_the_time_of_an_append(
    true_ms: int, wrong_ms: int, way_ms: int, later_ms: int
) -> None:
    clock = BrokerClock()
    reaches("a clock is wrong by more than an append takes", abs(wrong_ms) > way_ms)
    assert clock.ahead_ms(true_ms, 0) == 0, "nothing is known"
    clock.stamped(true_ms, 0, way_ms)
    for stamped_at_ms in (0, way_ms):
        now_ms = true_ms + way_ms - stamped_at_ms + later_ms
        told = clock.ahead_ms(now_ms + wrong_ms, way_ms + later_ms)
        assert abs(told) <= abs(wrong_ms)
        assert abs(told - wrong_ms) <= way_ms
