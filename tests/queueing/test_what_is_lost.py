"""Which snapshots, and which logs of decisions, let another process begin: what counts as lost."""

from __future__ import annotations

import pytest

from fallow.services.queueing.app.snapshots_lost import Lost, lost_snapshots
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.snapshots import manifest_at_the_end, read_catalogue, write_snapshot
from tests.queueing.queueing_world import LAYOUT, Cell

DECISIONS_TP, SNAPSHOTS_TP = ("t.decisions", 0), ("t.snapshots", 0)


async def keep(cell: Cell) -> None:
    """Write a snapshot of all that was decided so far."""
    log = MemoryLog(cell.broker)
    follower = Follower(log, LAYOUT, "main", snapshots=False)
    await follower.start()
    await follower.catch_up()
    await follower.stop()
    catalogue = await read_catalogue(log, LAYOUT, "main")
    await write_snapshot(log, LAYOUT, follower.state, catalogue, writer="w", wall_ms=0)


async def lost(cell: Cell, version: int, next_offset: int) -> Lost | None:
    return await lost_snapshots(MemoryLog(cell.broker), LAYOUT, "main", version, next_offset)


async def test_a_snapshot_that_is_older_than_the_one_that_was_there_does_not_serve() -> None:
    cell = Cell()
    cell.enqueue("a")
    await keep(cell)
    cell.enqueue("b")
    assert await lost(cell, 1, 2) is None
    found = await lost(cell, 2, 2)
    assert found is not None
    assert "version 1 at offset 0" in found.reason


async def test_where_none_was_ever_written_one_is_missed_only_behind_decisions_that_are_deleted() -> None:
    cell = Cell()
    cell.enqueue("a")
    cell.enqueue("b")
    assert await lost(cell, 0, 2) is None
    cell.broker.delete_before(DECISIONS_TP, 1)
    assert await lost(cell, 0, 2) == Lost(1, "topic snapshots holds none that is whole")


@pytest.mark.parametrize(("next_offset", "is_lost"), [(1, False), (2, True), (3, True), (4, False)])
async def test_nothing_is_lost_for_a_state_that_the_log_contradicts(next_offset: int, *, is_lost: bool) -> None:
    """A log of offsets 2 to 3 has nothing for who reads on from 1, or from behind its end."""
    cell = Cell()
    for job in "abc":
        cell.enqueue(job)
    cell.broker.delete_before(DECISIONS_TP, 2)
    assert (await lost(cell, 1, next_offset) is not None) == is_lost


async def test_a_manifest_whose_chunks_are_gone_by_age_is_no_snapshot() -> None:
    cell = Cell()
    cell.enqueue("a")
    await keep(cell)
    log, end = MemoryLog(cell.broker), cell.broker.partition(SNAPSHOTS_TP).end
    assert await manifest_at_the_end(log, LAYOUT, "main") is not None
    cell.broker.delete_before(SNAPSHOTS_TP, end - 1)
    assert await manifest_at_the_end(log, LAYOUT, "main") is None
    assert await lost(cell, 1, 1) == Lost(0, "topic snapshots holds none that is whole")
