"""Placement processes on a log in memory: the shells that ship, with the service and the group in them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from pydantic import SecretStr

from fallow.services.placement.app.cell_writer import CellWriter, Deciding
from fallow.services.placement.app.metrics import PlacementMetrics
from fallow.services.placement.app.ownership import Ownership
from fallow.services.placement.app.writer import watch_ownership
from fallow.services.placement.service import PlacementService
from fallow.services.placement.settings import PlacementSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import AppendAnswer, AppendRefused, LogRefused, Outgoing, Refusal
from fallow.shared.runtime.clocks import WallCellClock
from fallow.shared.runtime.files.cell_file import load_cell_file, parse_cell_file
from fallow.shared.runtime.host import Host
from fallow.shared.runtime.process import make_context

NAMESPACE, CELL = "t", "main"
LAYOUT = Layout(NAMESPACE, {CELL: 0})
TEXT = """
cells: [{name: main, ordinal: 0, pools: [{name: train, gpus: 8}]}]
tenants: [{name: vision}]
"""
SMALL_BYTES = 10_000
TOPICS = ("cells", "decisions", "snapshots", "jobs", "queue", "nodes", "proposals", "operations", "dead-letters")


def cluster(stamps: Callable[[], int] | None = None) -> MemoryBroker:
    """A broker with all topics. `stamps`: its clock; without it no record is stamped."""
    broker = MemoryBroker(stamps)
    for topic in TOPICS:
        broker.create_topic(f"{NAMESPACE}.{topic}", 1)
    return broker


@cache
def the_file() -> CellFile:
    """The cell file of all processes that are given no other one, read once."""
    return parse_cell_file(TEXT, "cell")


class RefusedLog(MemoryLog):
    """A process's handle onto a broker that refuses what this process alone writes to some topics."""

    def __init__(self, broker: MemoryBroker, *topics: str) -> None:
        super().__init__(broker)
        self.refused = {f"{NAMESPACE}.{topic}" for topic in topics}
        self.tries: Counter[str] = Counter()

    async def append(self, message: Outgoing) -> AppendAnswer:
        self.tries[message.topic] += 1
        if message.topic in self.refused:
            return AppendRefused(Refusal.NOT_ALLOWED, f"no right to write {message.topic}")
        return await super().append(message)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            self.tries[message.topic] += 1
            if message.topic in self.refused:
                raise LogRefused(Refusal.NOT_ALLOWED, f"no right to write {message.topic}")
        await super().publish(messages)


class SmallTopic(MemoryLog):
    """A broker on which topic `decisions` takes less than placement writes at most; it counts what it refused."""

    refused = 0

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        broker.takes_bytes[LAYOUT.topic("decisions")] = SMALL_BYTES

    async def append(self, message: Outgoing) -> AppendAnswer:
        answer = await super().append(message)
        self.refused += isinstance(answer, AppendRefused)
        return answer


class PlacementProcess:
    """One placement process with one cell, and its place in the group."""

    def __init__(
        self,
        log: MemoryLog,
        name: str,
        host: Host | None = None,
        owned: type[Ownership] = Ownership,
        deciding: Deciding = PlacementService,
        *,
        cell_file: Path | None = None,
        signing_key: SigningKey | None = None,
        begin_cells: str = "",
    ) -> None:
        secret = SecretStr("" if signing_key is None else signing_key.text)
        settings = PlacementSettings(namespace=NAMESPACE, instance=name, signing_key=secret, begin_cells=begin_cells)
        if cell_file is not None:
            settings = settings.model_copy(update={"cell_file": cell_file})
        context = make_context("placement", settings)
        if host is not None:
            context = replace(context, host=host, clock=WallCellClock(wall=host.wall_ms))
        self.context = context
        self.member = log.member(LAYOUT.group("placement"), LAYOUT.topic("cells"))
        self.owned = owned(self.member)
        file = the_file() if cell_file is None else load_cell_file(cell_file)
        metrics = PlacementMetrics(self.context.registry)
        self.writer = CellWriter(self.context, log, file, file.cells[0], self.owned, metrics, deciding)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def health(self) -> str:
        """Why the process is not ready; empty where it is."""
        return self.context.health.waiting_for or ""

    def metric(self, name: str) -> float:
        """A metric of the cell."""
        return self.context.registry.get_sample_value(name, {"cell": CELL}) or 0.0

    async def start(self) -> None:
        await self.member.start()
        self._tasks = [
            asyncio.create_task(self.writer.run()),
            asyncio.create_task(watch_ownership(self.context, self.owned, {CELL: self.writer})),
        ]

    async def crash(self) -> None:
        """The process dies: it puts nothing down."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.member.stop()

    async def stop(self) -> None:
        self.context.stopping.set()
        self.writer.wake()
        run, watch = self._tasks
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await asyncio.wait_for(run, 10)
        await self.member.stop()
