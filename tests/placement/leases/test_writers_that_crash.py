"""Writers that crash one after the other lose a silent node all the same, and none that reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.service import CLOCK_BOUND_MS
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, AttemptTimedOut, LeaseExpired
from fallow.shared.events.fields.values import JobSpec, NodeSpec
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.nodes import NodeJoined, NodeReport
from fallow.shared.events.operations import CellPolicy, SetPolicy
from fallow.shared.log.memory.log import MemoryLog
from fallow.shared.log.reading import event_of
from tests.hypothesis_profile import reaches
from tests.placement.worlds.virtual import VirtualHost, run_virtually
from tests.placement.worlds.writers import CELL, LAYOUT, PlacementProcess, cluster

SILENT = "node-0"
NODES = tuple(f"node-{number}" for number in range(6))
REPORT_S, BOOT = 10, "boot-1"


class Cell:
    """Nodes of which the first few say nothing after they have joined, and placement processes that crash."""

    def __init__(self, host: VirtualHost, silent: int) -> None:
        self.host, self.living = host, NODES[silent:]
        self.broker = cluster(host.wall_ms)
        for node in NODES:
            spec = NodeSpec(id=node, pool="train", gpus=8)
            self.tell(NodeJoined(cell=CELL, node=node, boot=BOOT, seq=0, spec=spec))

    def tell(self, event: Event) -> None:
        self.broker.write(LAYOUT.outgoing(event, id="t", source="t", wall_ms=0))

    async def report(self) -> None:
        """The living nodes, each at a time of its own; a report that the log does not take is tried again."""
        second = 0
        due: dict[str, NodeReport] = {}
        while True:
            for number, node in enumerate(self.living):
                if (second + 2 * number) % REPORT_S == 0:
                    due[node] = NodeReport(cell=CELL, node=node, boot=BOOT, seq=second + 1)
            if not self.broker.is_away:
                for report in due.values():
                    self.tell(report)
                due = {}
            second += 1
            await asyncio.sleep(1)

    async def write_for(self, seconds: float, name: str, host: VirtualHost | None = None) -> None:
        process = PlacementProcess(MemoryLog(self.broker), name, host or self.host)
        await process.start()
        await asyncio.sleep(seconds)
        await process.crash()

    def effects(self) -> list[AnyEffect]:
        """All that the log holds."""
        events = [event_of(record) for record in self.broker.partition(LAYOUT.tp("decisions", CELL)).records]
        return [effect for event in events if isinstance(event, Decision) for effect in event.effects]

    def lost(self) -> list[str]:
        """The nodes whose lease ran out, as the log has it."""
        return [effect.node for effect in self.effects() if isinstance(effect, LeaseExpired)]


async def crash_after(
    host: VirtualHost, stints_s: Sequence[int], away_s: Sequence[int] = (), silent: int = 1, *before: Event
) -> list[str]:
    """The nodes that writers lose of which each lives so long. Behind each the broker is away for so long."""
    cell = Cell(host, silent)
    for event in before:
        cell.tell(event)
    reports = asyncio.create_task(cell.report())
    for number, stint_s in enumerate(stints_s):
        await cell.write_for(stint_s, f"writer-{number}")
        cell.broker.is_away = True
        await asyncio.sleep(away_s[number % len(away_s)] if away_s else 1)
        cell.broker.is_away = False
    reports.cancel()
    return cell.lost()


async def crash_until_lost(host: VirtualHost, stints_s: Sequence[int]) -> tuple[list[str], int]:
    """One silent node, until it is lost, and how many lives that took: at most so many."""
    cell = Cell(host, silent=1)
    reports, lives = asyncio.create_task(cell.report()), 0
    for stint_s in stints_s:
        await cell.write_for(stint_s, f"writer-{lives}")
        lives += 1
        if cell.lost():
            break
        cell.broker.is_away = True
        await asyncio.sleep(1)
        cell.broker.is_away = False
    reports.cancel()
    return cell.lost(), lives


@pytest.mark.parametrize("every_s", [5, 8, 11, 14])
def test_writers_that_crash_lose_a_silent_node_all_the_same(every_s: int) -> None:
    assert run_virtually(lambda host: crash_after(host, [every_s] * (120 // every_s))) == [SILENT]


class HostAhead(VirtualHost):
    """This machine with a clock that is ahead by almost as much as one may be."""

    def wall_ms(self) -> int:
        return super().wall_ms() + CLOCK_BOUND_MS - 1_000


async def taken_over_late(host: VirtualHost) -> list[str]:
    """The nodes that a writer loses in its first seconds whose clock is ahead, where none wrote for long before."""
    cell = Cell(host, silent=1)
    reports = asyncio.create_task(cell.report())
    await cell.write_for(5, "writer-0")
    await asyncio.sleep(45)
    await cell.write_for(15, "writer-1", HostAhead(host.engine))
    reports.cancel()
    return cell.lost()


def test_a_writer_whose_clock_is_ahead_looks_back_as_far_as_any_other() -> None:
    assert run_virtually(taken_over_late) == [SILENT]


async def start_in_vain(host: VirtualHost) -> list[AnyEffect]:
    """What writers of seven seconds each decide of a job whose node lives and never starts it."""
    cell = Cell(host, silent=0)
    cell.tell(SetPolicy(cell=CELL, policy=CellPolicy(start_timeout_wall_ms=20_000)))
    cell.tell(JobAdmitted(cell=CELL, spec=JobSpec(id="job", tenant="vision"), submit_ms=0, digest="0" * 32))
    reports = asyncio.create_task(cell.report())
    for number in range(4):
        await cell.write_for(7, f"writer-{number}")
    reports.cancel()
    return cell.effects()


def test_writers_that_crash_give_up_a_start_that_is_not_confirmed() -> None:
    assert any(isinstance(effect, AttemptTimedOut) for effect in run_virtually(start_in_vain))


def test_writers_that_crash_let_nodes_go_one_by_one_that_fell_silent_together() -> None:
    policy = CellPolicy(breaker_wait_wall_ms=20_000, breaker_nodes_per_minute=100)
    before = SetPolicy(cell=CELL, policy=policy)
    lost = run_virtually(lambda host: crash_after(host, [5] * 30, (), 3, before))
    assert sorted(lost) == sorted(NODES[:3])


@given(st.lists(st.integers(4, 60), min_size=1, max_size=12), st.lists(st.integers(0, 90), max_size=3))
def test_no_node_that_reports_is_lost_however_writers_crash_and_the_log_goes_away(
    stints_s: list[int], away_s: list[int]
) -> None:
    lost = run_virtually(lambda host: crash_after(host, stints_s, away_s))
    reaches("the silent node is lost, and no other one", lost)
    assert lost in ([], [SILENT])


@given(st.lists(st.integers(4, 14), min_size=25, max_size=25))
def test_a_silent_node_is_lost_whatever_the_writers_lives(stints_s: list[int]) -> None:
    lost, lives = run_virtually(lambda host: crash_until_lost(host, stints_s))
    reaches("the silence goes on over more than four writers", lives > 4)
    assert lost == [SILENT]
