"""What placement notes in /readyz of a cell: told by the process that writes it, and by no other."""

from __future__ import annotations

import asyncio

from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import NodeSpec
from fallow.shared.events.nodes import NodeJoined, NodeReport
from fallow.shared.events.queue import StartsPlanned
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import AppendAnswer, LogUnavailable, Outgoing
from tests.placement.worlds.virtual import VirtualHost, run_virtually
from tests.placement.worlds.writers import CELL, LAYOUT, PlacementProcess, cluster

NODES, LIVING = tuple(f"node-{number}" for number in range(6)), 2


def tell(broker: MemoryBroker, event: Event) -> None:
    broker.write(LAYOUT.outgoing(event, id="t", source="t", wall_ms=0))


def notes(process: PlacementProcess) -> list[str]:
    return list(process.context.health._notes.values())


def plan(at_ms: int) -> StartsPlanned:
    return StartsPlanned(cell=CELL, writer="q", plan=1, version=1, at_ms=at_ms, starts=())


async def leave(process: PlacementProcess) -> None:
    """The cell is given to no process, and the process goes on as a standby."""
    process.owned.give_up(0)
    process.writer.wake()
    await asyncio.sleep(20)


async def take_again(process: PlacementProcess) -> None:
    process.owned.take_again(0)
    process.writer.wake()
    await asyncio.sleep(20)


def test_the_clock_of_queueing_is_noted_until_the_cell_is_left_and_not_before_a_plan_says_so_again() -> None:
    async def course(host: VirtualHost) -> list[list[str]]:
        broker = cluster(host.wall_ms)
        process = PlacementProcess(MemoryLog(broker), "placement-0", host)
        await process.start()
        await asyncio.sleep(5)
        told = []
        for change in (None, leave, take_again, None):
            if change is None:
                tell(broker, plan(host.wall_ms() + 100_000))
                await asyncio.sleep(5)
            else:
                await change(process)
            told.append(notes(process))
        await process.stop()
        return told

    ahead, left, taken, again = run_virtually(course)
    assert [len(ahead), len(again)] == [1, 1]
    assert "clock is" in ahead[0]
    assert (left, taken) == ([], [])


async def report(host: VirtualHost, broker: MemoryBroker) -> None:
    seq = 0
    while True:
        seq += 1
        for node in NODES[:LIVING]:
            tell(broker, NodeReport(cell=CELL, node=node, boot="boot-1", seq=seq))
        await asyncio.sleep(5)


def test_silent_nodes_are_noted_by_the_process_that_writes_the_cell_alone() -> None:
    async def course(host: VirtualHost) -> list[list[str]]:
        broker = cluster(host.wall_ms)
        for node in NODES:
            spec = NodeSpec(id=node, pool="train", gpus=8)
            tell(broker, NodeJoined(cell=CELL, node=node, boot="boot-1", seq=0, spec=spec))
        reports = asyncio.create_task(report(host, broker))
        first = PlacementProcess(MemoryLog(broker), "placement-0", host)
        await first.start()
        await asyncio.sleep(120)
        second = PlacementProcess(MemoryLog(broker), "placement-1", host)
        await second.start()
        told = [notes(first), notes(second)]
        await leave(first)
        told += [notes(first), notes(second)]
        reports.cancel()
        await first.stop()
        await second.stop()
        return told

    before, standby, left, taken = run_virtually(course)
    assert len(before) == len(taken) == 1
    assert "4 nodes silent" in before[0]
    assert "4 nodes silent" in taken[0]
    assert (standby, left) == ([], [])


class NoTime(MemoryLog):
    """A handle onto a broker whose topic `cells` does not answer."""

    is_silent = False

    async def append(self, message: Outgoing) -> AppendAnswer:
        if self.is_silent and message.topic == LAYOUT.topic("cells"):
            raise LogUnavailable("no answer")
        return await super().append(message)


def test_the_broker_s_time_that_is_asked_for_in_vain_is_noted_until_the_cell_is_left() -> None:
    async def course(host: VirtualHost) -> list[list[str]]:
        log = NoTime(cluster(host.wall_ms))
        process = PlacementProcess(log, "placement-0", host)
        await process.start()
        await asyncio.sleep(5)
        log.is_silent = True
        await asyncio.sleep(60)
        told = [notes(process)]
        await leave(process)
        told.append(notes(process))
        await process.stop()
        return told

    before, left = run_virtually(course)
    assert len(before) == 1
    assert "times in a row" in before[0]
    assert left == []
