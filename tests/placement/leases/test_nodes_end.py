"""The end of topic `nodes` is asked for beside the writer's cycles, and silence counts only up to where it is read."""

from __future__ import annotations

import asyncio

import pytest

from fallow.services.placement.app.watch.inflow import Inflow
from fallow.services.placement.app.watch.nodes_end import NodesEnd
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from tests.placement.worlds.world import cell_with, joined, kinds, report

NODES = ("nodes", 0)
LEASE_MS = 30_000


def written(count: int) -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("nodes", 1)
    write(broker, count)
    return broker


def write(broker: MemoryBroker, count: int) -> None:
    for _ in range(count):
        broker.write(Outgoing("nodes", b"news", partition=0))


async def answered(nodes_end: NodesEnd, now_ms: int) -> tuple[int, int] | None:
    """The answer to what is asked now."""
    assert nodes_end.ask(now_ms, LEASE_MS) is None
    for _ in range(10):
        await asyncio.sleep(0)
    return nodes_end.ask(now_ms, LEASE_MS)


async def test_the_end_belongs_to_the_moment_before_it_was_asked_for() -> None:
    broker = written(3)
    nodes_end = NodesEnd(MemoryLog(broker), NODES)
    assert await answered(nodes_end, 10_000) == (3, 10_000)
    write(broker, 1)
    assert await answered(nodes_end, 11_000) == (4, 11_000)
    await nodes_end.stop()


async def test_reports_in_a_transaction_that_is_open_stand_before_the_end() -> None:
    broker = written(3)
    broker.hold(NODES, 2)
    nodes_end = NodesEnd(MemoryLog(broker), NODES)
    assert await answered(nodes_end, 10_000) == (5, 10_000)
    await nodes_end.stop()


@pytest.mark.parametrize(("lease_ms", "again_ms"), [(30_000, 1_000), (800, 100), (1, 1)])
async def test_it_is_asked_for_once_a_second_or_more_often_where_leases_are_short(lease_ms: int, again_ms: int) -> None:
    nodes_end = NodesEnd(MemoryLog(written(0)), NODES)
    assert nodes_end.ask(0, lease_ms) is None
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert nodes_end.ask(again_ms - 1, lease_ms) == (0, 0)
    assert nodes_end.ask(again_ms - 1, lease_ms) is None
    await asyncio.sleep(0)
    assert nodes_end.ask(again_ms - 1, lease_ms) is None
    nodes_end.ask(again_ms, lease_ms)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert nodes_end.ask(again_ms, lease_ms) == (0, again_ms)
    await nodes_end.stop()


async def test_a_log_that_is_away_gives_no_answer_and_is_asked_again() -> None:
    broker = written(2)
    nodes_end = NodesEnd(MemoryLog(broker), NODES)
    broker.is_away = True
    assert await answered(nodes_end, 0) is None
    broker.is_away = False
    assert await answered(nodes_end, 1_000) == (2, 1_000)
    await nodes_end.stop()


async def test_what_lies_with_the_reader_is_not_given_yet() -> None:
    """A reader that has read ahead of the writer says nothing of what the writer knows."""
    broker = written(3)
    inflow = Inflow({"nodes": MemoryLog(broker).reader({NODES: 1})}, 2, lambda _: True)
    assert inflow.given == {"nodes": 1}
    await inflow.wait(50)
    assert inflow.given == {"nodes": 1}
    await inflow.take()
    assert inflow.given == {"nodes": 3}
    await inflow.stop()


def test_what_waits_for_the_next_decision_is_not_heard_yet() -> None:
    world = cell_with(joined("n1"))
    world.pass_time(39_000)
    world.service.inputs_read({"nodes-0": len(world.inputs["nodes-0"]) + 1})
    world.hand_over(report("n1"))
    world.wall_ms += 2_000
    assert "LeaseExpired" not in kinds(world.rest())


def test_what_is_no_record_does_not_keep_a_lease_alive() -> None:
    """Behind an aborted transaction the topic ends beyond its last record."""
    world = cell_with(joined("n1"))
    world.unread_nodes = 1
    assert kinds(world.pass_time(50_000)) == ["NodeSilent"]
    world.service.inputs_read({"nodes-0": len(world.inputs["nodes-0"]) + 1})
    assert kinds(world.rest()) == ["LeaseExpired"]
