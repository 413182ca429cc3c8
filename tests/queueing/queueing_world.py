"""A cell whose decisions a test writes, and the queueing process that follows it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fallow.services.queueing.app.cell import CellPlanner, QueueingMetrics
from fallow.services.queueing.app.snapshots import Keeper, SnapshotMetrics
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.effects import AnyEffect, JobEnqueued, JobStarted, NodeChanged, PolicySet
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import PlannedStart, QueuePlanned, StartsPlanned
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogUnavailable, Outgoing, RecordTooLarge
from fallow.shared.log.reading import event_of
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.snapshots import newest_snapshot
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import Context, make_context

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


class HandHost(NotingHost):
    """A host on which no time passes but what the test lets pass: to write a snapshot takes none, however busy the
    machine is.
    """

    now_ms = 0

    def monotonic_ms(self) -> int:
        """What the test says."""
        return self.now_ms


class Cell:
    """The decision log of a cell, and what queueing says of it."""

    def __init__(self, layout: Layout = LAYOUT) -> None:
        """`layout` is the process's, with the keys that it believes."""
        self.broker, self._chain, self._version, self._at_ms = MemoryBroker(), CHAIN_START, 0, 0
        self.layout = layout
        for topic in ("decisions", "snapshots", "queue"):
            self.broker.create_topic(f"t.{topic}", 1)
        self.log, self.tenure, self.host = RefusingLog(self.broker), Tenure("main"), NotingHost()
        self.retention_ms: int | None = None

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
        self._at_ms = at_ms = max(at_ms, self._at_ms + 1)
        decision = Decision(cell="main", version=self._version, epoch=1, at_ms=at_ms, effects=effects)
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

    async def snapshot(self) -> CellState | None:
        """The newest snapshot that is whole."""
        return await newest_snapshot(MemoryLog(self.broker), LAYOUT, "main")

    @asynccontextmanager
    async def planned(self, **settings: Any) -> AsyncIterator[Context[QueueingSettings]]:
        """While queueing runs; it ends as where the process is told to stop, if it is."""
        context = make_context("queueing", QueueingSettings(namespace="t", **{"plan_every_wall_ms": 50} | settings))
        context = dataclasses.replace(context, host=self.host)
        running = asyncio.create_task(self.planner(context).run())
        try:
            yield context
        finally:
            running.cancel()
            await asyncio.wait([running])

    def planner(self, context: Context[QueueingSettings]) -> CellPlanner:
        """What does the work on the cell."""
        file, metrics = parse_cell_file(TEXT, "cell"), QueueingMetrics(context.registry)
        of_snapshots = SnapshotMetrics(context.registry)
        keeping = partial(Keeper, context, self.log, self.layout, of_snapshots, self.tenure, self.retention_ms)
        return CellPlanner(context, self.log, self.layout, file, self.tenure, metrics, keeping)


def starts_planned(cell: Cell) -> list[StartsPlanned]:
    """What queueing has said of planned starts."""
    events = [event_of(record) for record in cell.broker.partition(QUEUE).records]
    return [event for event in events if isinstance(event, StartsPlanned)]
