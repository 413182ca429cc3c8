"""Queueing's process for one cell: when it says who is next, and what it does where Kafka is away."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from services.queueing.app.cell import CellPlanner, QueueingMetrics
from services.queueing.settings import QueueingSettings
from shared.events.base import Event
from shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from shared.events.effects import AnyEffect, JobEnqueued, JobStarted, NodeChanged, PolicySet, ReservationSet
from shared.events.encoding import encode
from shared.events.operations import CellPolicy
from shared.events.queue import PlannedStart, QueuePlanned, StartsPlanned
from shared.events.value import replace
from shared.events.values import JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from shared.log.layout import Layout
from shared.log.memory.log import MemoryBroker, MemoryLog
from shared.log.port import LogUnavailable, Outgoing, RecordTooLarge
from shared.log.reading import event_of
from shared.log.sharing.cell_tasks import Tenure
from shared.runtime.clocks import wall_ms
from shared.runtime.files.cell_file import parse_cell_file
from shared.runtime.host import Host
from shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually

T = TypeVar("T")

LAYOUT, QUEUE = Layout("t", {"main": 0}), ("t.queue", 0)
TEXT = "cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}]\ntenants: [{name: vision}]\n"


class RefusingLog(MemoryLog):
    """A log that takes nothing for a while."""

    refusals = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Raises LogUnavailable as often as told."""
        if self.refusals:
            self.refusals -= 1
            raise LogUnavailable("no broker")
        await super().publish(messages)


class SmallLog(RefusingLog):
    """A log whose topics take small records only."""

    def __init__(self, broker: MemoryBroker, record_bytes_max: int) -> None:
        super().__init__(broker)
        self.record_bytes_max = record_bytes_max

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Raises RecordTooLarge, with the records before it written."""
        for message in messages:
            if len(message.value or b"") > self.record_bytes_max:
                raise RecordTooLarge(f"record for {message.topic}: at most {self.record_bytes_max}")
            await super().publish([message])


class NotingHost(Host):
    """A host that knows what was done beside the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.beside_the_loop: list[str] = []

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        if may_be_long:
            self.beside_the_loop.append(kind)
        return await super().beside(work, kind, may_be_long=may_be_long)


class Cell:
    """The decision log of a cell, and what queueing says of it."""

    def __init__(self) -> None:
        self.broker, self._chain, self._version = MemoryBroker(), CHAIN_START, 0
        for topic in ("decisions", "snapshots", "queue"):
            self.broker.create_topic(f"t.{topic}", 1)
        self.log, self.tenure, self.host = RefusingLog(self.broker), Tenure("main"), NotingHost()

    def enqueue(self, *jobs: str) -> None:
        """One decision that lets these jobs in."""
        self.decide(*(JobEnqueued(spec=JobSpec(id=job, tenant="vision"), submit_ms=0, digest="0" * 32) for job in jobs))

    def fill(self, *jobs: str) -> None:
        """A node comes, one job takes it for a while, and these wait for it in turn."""
        run = JobSpec(id="runs", tenant="vision", resources=Resources(gpu_milli=8_000), estimate_run_ms=60_000)
        place = WorkerPlace(rank=0, node="n1", devices=tuple(range(8)), gpu_milli=8_000)
        self.decide(
            PolicySet(policy=CellPolicy(reservations_max=8)),
            NodeChanged(spec=NodeSpec(id="n1", pool="training", gpus=8), status=NodeStatus.READY, boot="b"),
            *(JobEnqueued(spec=replace(run, id=job), submit_ms=0, digest="0" * 32) for job in ("runs", *jobs)),
            JobStarted(job="runs", attempt=1, workers=(place,)),
            at_ms=self.host.wall_ms(),
        )

    def decide(self, *effects: AnyEffect, at_ms: int = 0) -> None:
        """One decision with these effects."""
        self._version += 1
        decision = Decision(cell="main", version=self._version, epoch=1, at_ms=at_ms or self._version, effects=effects)
        self._chain = next_chain(self._chain, encode(decision))
        more = ((CHAIN_HEADER, self._chain.encode()),)
        self.broker.write(LAYOUT.outgoing(decision, id="1", source="test", wall_ms=0, more=more))

    def plans(self) -> list[QueuePlanned]:
        """What queueing has said so far."""
        events: list[Event | None] = [event_of(record) for record in self.broker.partition(QUEUE).records]  # type: ignore[misc]
        return [event for event in events if isinstance(event, QueuePlanned)]

    def starts(self) -> list[PlannedStart]:
        """The planned starts of the newest plan that has any."""
        events = [event_of(record) for record in self.broker.partition(QUEUE).records]
        plans = [event for event in events if isinstance(event, StartsPlanned)]
        return list(plans[-1].starts) if plans else []

    def newest(self) -> list[tuple[str, int, tuple[str, ...]]]:
        """The queues of the newest plan, with how many jobs wait there and who is next."""
        plans = self.plans()
        return [(each.queue, each.waiting, each.next) for each in plans[-1].queues] if plans else []

    @asynccontextmanager
    async def planned(self) -> AsyncIterator[Context[QueueingSettings]]:
        """While queueing runs."""
        context = make_context("queueing", QueueingSettings(namespace="t", plan_every_wall_ms=50))
        context = dataclasses.replace(context, host=self.host)
        file, metrics = parse_cell_file(TEXT, "cell"), QueueingMetrics(context.registry)
        running = asyncio.create_task(CellPlanner(context, self.log, LAYOUT, file, self.tenure, metrics).run())
        try:
            yield context
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_each_plan_says_who_is_next_as_of_the_newest_decision() -> None:
    cell = Cell()
    cell.enqueue("a", "b")
    async with cell.planned() as context:
        await eventually(lambda: cell.newest() == [("default", 2, ("a", "b"))])
        cell.enqueue("c")
        await eventually(lambda: cell.newest() == [("default", 3, ("a", "b", "c"))])
        assert cell.plans()[-1].version == 2
        assert context.registry.get_sample_value("fallow_queue_jobs", {"cell": "main", "queue": "default"}) == 3
    numbers = [plan.plan for plan in cell.plans()]
    assert numbers == sorted(set(numbers))


async def test_a_plan_is_made_beside_the_loop_however_long_that_takes() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: cell.newest() == [("default", 1, ("a",))])
    assert "plan of main" in cell.host.beside_the_loop


async def test_while_nothing_is_decided_no_plan_follows() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: len(cell.plans()) == 1)
        await asyncio.sleep(0.3)
        assert len(cell.plans()) == 1


async def test_a_process_that_does_not_own_the_cell_follows_it_and_says_nothing() -> None:
    cell = Cell()
    cell.tenure.holds = False
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: context.health.progress.version.get("main") == 1)
        await asyncio.sleep(0.1)
        assert cell.plans() == []


async def test_a_plan_that_kafka_does_not_take_is_made_anew_and_the_process_is_not_ready_meanwhile() -> None:
    cell = Cell()
    cell.log.refusals = 1
    cell.enqueue("a")
    async with cell.planned() as context:
        await eventually(lambda: "no broker" in (context.health.waiting_for or ""))
        assert cell.plans() == []
        await eventually(lambda: cell.newest() == [("default", 1, ("a",))])
        await eventually(lambda: context.health.waiting_for is None)


def starts_planned(cell: Cell) -> list[StartsPlanned]:
    """What queueing has said of planned starts."""
    events = [event_of(record) for record in cell.broker.partition(QUEUE).records]
    return [event for event in events if isinstance(event, StartsPlanned)]


async def test_the_first_plan_of_a_process_ends_what_one_before_it_planned() -> None:
    cell = Cell()
    cell.enqueue("a")
    async with cell.planned():
        await eventually(lambda: [each.starts for each in starts_planned(cell)] == [()])
        cell.enqueue("b")
        await eventually(lambda: len(cell.plans()) == 2)
        assert len(starts_planned(cell)) == 1, "where nothing is planned nothing more is said"


async def test_while_starts_are_planned_they_are_confirmed_though_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.queueing.app.cell.CONFIRMED_WALL_MS", 100)
    cell, far_ms = Cell(), wall_ms() + 10**8
    node = NodeSpec(id="n1", pool="training", gpus=1)
    place = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1_000)
    cell.decide(
        NodeChanged(spec=node, boot="boot-1", status=NodeStatus.READY),
        *(
            JobEnqueued(spec=JobSpec(id=job, tenant="vision", estimate_run_ms=far_ms), submit_ms=0, digest="0" * 32)
            for job in "ab"
        ),
        JobStarted(job="a", attempt=1, workers=(place,)),
        ReservationSet(job="b", start_ms=far_ms),
    )
    async with cell.planned():
        await eventually(lambda: len(starts_planned(cell)) >= 3)
    assert {plan.version for plan in starts_planned(cell)} == {1}


@pytest.mark.parametrize(("bytes_max", "is_said"), [(10**6, True), (350, False)])
async def test_planned_starts_that_topic_queue_never_takes_keep_no_order_back(bytes_max: int, *, is_said: bool) -> None:
    cell, jobs = Cell(), tuple(f"wait-{number}" for number in range(8))
    cell.log = SmallLog(cell.broker, bytes_max)
    cell.fill(*jobs)
    async with cell.planned() as context:
        await eventually(lambda: cell.newest() == [("default", 8, jobs)])
        await asyncio.sleep(0.1)
        assert context.health.waiting_for is None
        left_unsaid = context.registry.get_sample_value("fallow_queue_too_large_total", {"cell": "main"})
    assert [start.job for start in cell.starts()] == list(jobs if is_said else ())
    assert (left_unsaid or 0) == (not is_said)
