"""One cell on a log in memory, and projectors of it that a test starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fallow.services.projector.app.cell import CellProjector
from fallow.services.projector.app.metrics import ProjectorMetrics
from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.events.decisions import Decision
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.view.compare import ViewMoved, compare_view
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.store import Functions, ViewUnavailable
from tests.contract.eventually import eventually
from tests.histories import CELL, History, outgoing


class Projector:
    """A projector of the cell, as a process would run it."""

    def __init__(self, world: ProjectorWorld, name: str, settings: ProjectorSettings) -> None:
        self.context: Context[ProjectorSettings] = make_context(name, settings.model_copy(update={"instance": name}))
        self.metrics, self.tenure = ProjectorMetrics(self.context.registry), Tenure(CELL)
        self.cell = CellProjector(
            self.context, MemoryLog(world.broker), world.layout, world.functions, self.metrics, self.tenure
        )
        self._task = asyncio.create_task(self.cell.run())

    def count(self, outcome: str) -> int:
        return int(self.metrics.steps.labels(CELL, outcome)._value.get())

    async def stop(self) -> None:
        self.context.stopping.set()
        await self._task

    @property
    def cursor(self) -> int | None:
        return self.context.health.progress.cursors.get(f"{self.context.settings.namespace}.decisions/0")


class ProjectorWorld:
    def __init__(self, functions: Functions, namespace: str) -> None:
        self.functions, self.namespace = functions, namespace
        self.layout = Layout(namespace, {CELL: 0})
        self.broker = MemoryBroker()
        for topic in ("decisions", "snapshots"):
            self.broker.create_topic(self.layout.topic(topic), 1)
        self.reader = ViewReader(functions, namespace, [CELL])
        self.history = History(1)
        self.written: list[Decision] = []
        self.projectors: list[Projector] = []

    def start(self, name: str = "projector-1", **settings: int) -> Projector:
        projector = Projector(self, name, ProjectorSettings(namespace=self.namespace, **settings))  # type: ignore[arg-type]
        self.projectors.append(projector)
        return projector

    async def live(self, decisions: int) -> None:
        """The cell's writer goes on."""
        chain = self.history.state.chain
        await self.write(self.history.decisions(decisions), chain)

    async def write(self, decisions: Sequence[Decision], chain: str) -> None:
        self.written += decisions
        await MemoryLog(self.broker).publish(outgoing(self.layout, decisions, chain))

    async def is_equal(self) -> bool:
        """Whether the view is at the end of the log and shows what its fold gives."""
        try:
            return await compare_view(self.reader, self.history.state) == []
        except (ViewMoved, ViewRebuilding, ViewUnavailable):
            return False

    async def settles(self) -> None:
        await eventually(self.is_equal)

    async def stop(self) -> None:
        for projector in self.projectors:
            await projector.stop()
