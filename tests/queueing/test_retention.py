"""A cell that has rested for any time starts again: what no kept snapshot covers is never deleted."""

from __future__ import annotations

import pytest

from fallow.services.queueing.app.retention import delete_old
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.events.decisions import Decision
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import read_catalogue
from tests.histories import CELL, History, outgoing
from tests.log.worlds.snapshot_world import TOPICS, layout_of, snapshot

LAYOUT = layout_of("fallow")
TP = LAYOUT.tp("decisions", CELL)
YEAR_MS = 365 * 86_400_000


class Rested:
    """A cell's log whose broker stamps by a clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.ahead_ms = 0
        """How far this machine's clock is ahead of the broker's."""
        self.broker = MemoryBroker(lambda: self.now_ms)
        for topic in TOPICS:
            self.broker.create_topic(LAYOUT.topic(topic), 2)
        self.log, self.history = MemoryLog(self.broker), History(41)
        self._written = list[Decision]()

    async def decide(self, count: int) -> None:
        self._written += self.history.decisions(count)
        await self.log.publish(outgoing(LAYOUT, self._written)[-count or len(self._written) :])

    @property
    def begin(self) -> int:
        return self.broker.partition(TP).begin

    async def delete(self, keep_ms: int) -> int:
        catalogue = await read_catalogue(self.log, LAYOUT, CELL)
        return await delete_old(self.log, LAYOUT, CELL, catalogue, keep_ms, self.now_ms + self.ahead_ms)


@pytest.fixture
def cell() -> Rested:
    return Rested()


async def test_without_a_snapshot_nothing_is_deleted_however_old_it_is(cell: Rested) -> None:
    await cell.decide(10)
    cell.now_ms += YEAR_MS
    await cell.decide(1)
    assert await cell.delete(1) == 0, "ten decisions are a year older than the newest one"
    assert cell.begin == 0


async def test_what_a_snapshot_covers_is_deleted_when_it_is_old(cell: Rested) -> None:
    await cell.decide(10)
    await snapshot(cell.log, LAYOUT, cell.history.state)
    cell.now_ms += 10_000
    await cell.decide(5)
    assert await cell.delete(20_000) == 0, "nothing is old"
    assert await cell.delete(5_000) == 10
    cell.now_ms += YEAR_MS
    await cell.decide(1)
    assert await cell.delete(5_000) == 0, "what lies behind the snapshot stays, though it is a year older"
    assert cell.begin == 10

    follower = Follower(cell.log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(cell.history.state)
    await follower.stop()


@pytest.mark.parametrize("ahead_ms", [YEAR_MS, 41 * 86_400_000, 60_000, 0, -60_000, -YEAR_MS])
async def test_no_clock_of_this_machine_deletes_what_is_new_by_the_brokers_stamps(cell: Rested, ahead_ms: int) -> None:
    cell.now_ms, cell.ahead_ms = 2 * YEAR_MS, ahead_ms
    await cell.decide(40)
    await snapshot(cell.log, LAYOUT, cell.history.state)
    cell.now_ms += 10_000
    await cell.decide(1)
    assert await cell.delete(20_000) == 0
    assert cell.begin == 0


async def test_a_broker_whose_clock_jumps_ahead_deletes_nothing_that_is_new(cell: Rested) -> None:
    await cell.decide(40)
    await snapshot(cell.log, LAYOUT, cell.history.state)
    cell.now_ms, cell.ahead_ms = cell.now_ms + YEAR_MS, -YEAR_MS
    await cell.decide(1)
    assert await cell.delete(20_000) == 0


async def test_a_torn_snapshot_covers_nothing(cell: Rested) -> None:
    await cell.decide(10)
    await snapshot(cell.log, LAYOUT, cell.history.state)
    catalogue = await read_catalogue(cell.log, LAYOUT, CELL)
    catalogue.parts.clear()
    cell.now_ms += YEAR_MS
    assert await delete_old(cell.log, LAYOUT, CELL, catalogue, 1, cell.now_ms) == 0
