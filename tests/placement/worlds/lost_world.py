"""The placement process itself on a log in memory, with jobs that were admitted by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fallow.services.placement.app.writer import main
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, JobEnqueued
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import Context, make_context
from tests.contract.eventually import eventually

CELL, DIGEST = "cell-a", "0" * 32
LAYOUT = Layout("test", {CELL: 0})
TOPICS = ("jobs", "queue", "nodes", "proposals", "operations", "decisions", "snapshots", "cells", "dead-letters")
FILE = "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n"


class LostWorld:
    """One cell's topics, and the placement processes that were run on them."""

    def __init__(self, folder: Path, stamps: Callable[[], int] | None = None) -> None:
        """`stamps`: the broker's clock; without it the broker stamps no record."""
        self.broker = MemoryBroker(stamps)
        for topic in TOPICS:
            self.broker.create_topic(LAYOUT.topic(topic), 1)
        self.log: Callable[[MemoryBroker], MemoryLog] = MemoryLog
        """What a process opens."""
        self._file = folder / "cell.yaml"
        self._file.write_text(FILE, encoding="utf-8")

    def tell(self, event: Event) -> None:
        self.broker.write(LAYOUT.outgoing(event, id="t", source="t", wall_ms=0))

    def admit(self, *names: str) -> None:
        for name in names:
            spec = JobSpec(id=name, tenant="acme", gpu_type="gpu")
            self.tell(JobAdmitted(cell=CELL, spec=spec, submit_ms=0, digest=DIGEST))

    def end(self, topic: str) -> int:
        return self.broker.partition((LAYOUT.topic(topic), 0)).end

    def decisions(self) -> list[Decision]:
        events = [event_of(record) for record in self.broker.partition((LAYOUT.topic("decisions"), 0)).records]
        return [event for event in events if isinstance(event, Decision)]

    def read(self, topic: str) -> int:
        """How far the log says that this input was read."""
        return max((decision.inputs.get(f"{topic}-0", 0) for decision in self.decisions()), default=0)

    def effects(self) -> list[AnyEffect]:
        return [effect for decision in self.decisions() for effect in decision.effects]

    def enqueued(self) -> list[str]:
        return [effect.spec.id for effect in self.effects() if isinstance(effect, JobEnqueued)]

    async def until_enqueued(self, count: int) -> None:
        await eventually(lambda: len(self.enqueued()) == count)

    @asynccontextmanager
    async def placement(
        self, *, host: Host | None = None, **settings: Any
    ) -> AsyncIterator[Context[PlacementSettings]]:
        """The process, while it runs; its failure is the test's."""
        context = make_context("placement", PlacementSettings(namespace="test", cell_file=self._file, **settings))
        if host is not None:
            context = replace(context, host=host)

        async def opening(*_: object) -> MemoryLog:
            return self.log(self.broker)

        running = asyncio.create_task(main(context, opening))
        try:
            await eventually(lambda: running.done() or context.health.is_ready or bool(context.health.waiting_for))
            yield context
        finally:
            context.stopping.set()
            await asyncio.wait_for(running, 10)
