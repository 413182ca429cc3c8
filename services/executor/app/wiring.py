"""The executor's main coroutine: its share of the slots, one `CellExecutor` for each cell with nodes, and the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

from fallow.services.executor.app.cell import CellExecutor
from fallow.services.executor.diaries import FOLDER, Diaries
from fallow.services.executor.files import DiskFiles
from fallow.services.executor.nodes_file import load_nodes
from fallow.services.executor.service import ExecutorService
from fallow.services.executor.settings import ExecutorSettings
from fallow.services.executor.telemetry import ExecutorTelemetry
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import NodeSpec, RunStatus
from fallow.shared.kept_folders import DIARIES
from fallow.shared.log.opening import OpenLog, joined, layout_for, open_log
from fallow.shared.log.port import Log, LogUnavailable, Member
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.runtime.files.folder_format import take_folder
from fallow.shared.runtime.process import Context, wait_for
from fallow.shared.runtime.settings import ClockKind

SLOTS_TOPIC = "executor-slots"
READS = (SLOTS_TOPIC, "decisions", "snapshots")
READS_BY_STEPS = ("operations",)
"""Where time goes by steps it is told there."""

SETTLE_WAIT_S = 3.0


Nodes = Mapping[str, tuple[NodeSpec, ...]]
"""The nodes of each cell."""

Keeping = Callable[[ExecutorSettings, str, int], Diaries]
"""The diaries of this cell's nodes, which are in so many slots."""


def keep_on_disk(settings: ExecutorSettings, cell: str, slots: int) -> Diaries:
    """Below the folder that the settings name. Raises FolderOfAnotherFormat."""
    folder = settings.data_dir / FOLDER
    with contextlib.suppress(OSError):  # the writer of a diary there waits until the folder can be made
        folder.mkdir(parents=True, exist_ok=True)
    take_folder("data_dir", folder, DIARIES)
    return Diaries(DiskFiles(settings.data_dir), cell, slots)


async def main(
    context: Context[ExecutorSettings],
    opening: OpenLog = open_log,
    loading: Callable[[Path], Nodes] = load_nodes,
    keeping: Keeping = keep_on_disk,
) -> None:
    """Run one executor until the process stops. Raises CellFileError, NodesFileError."""
    context.reads.update(READS if context.settings.clock is ClockKind.WALL else (*READS, *READS_BY_STEPS))
    file = context.host.cell_file(context.settings.cell_file)
    nodes = loading(context.settings.nodes_file)
    log = await opening(context, file)
    if log is not None:
        try:
            await execute(context, log, file, nodes, keeping)
        finally:
            await log.stop()


async def execute(
    context: Context[ExecutorSettings], log: Log, file: CellFile, nodes: Nodes, keeping: Keeping = keep_on_disk
) -> None:
    """Runs the executor on any started log. Raises ValueError for nodes of a cell that the cell file does not have."""
    settings = context.settings
    layout = layout_for(context, file)
    unknown = [cell for cell in nodes if cell not in layout.ordinals]
    if unknown:
        raise ValueError(f"{settings.nodes_file}: cell = {unknown[0]!r}: is not defined in {settings.cell_file}")
    topic = layout.topic(SLOTS_TOPIC)

    slots = 0

    async def is_missing() -> str | None:
        nonlocal slots
        slots = await log.partitions(topic)
        return None if slots else f"{topic} is missing"

    if not await wait_for(context, f"topic {topic}", is_missing, errors=(LogUnavailable, OSError)):
        return
    services: dict[str, ExecutorService] = {}
    telemetry = ExecutorTelemetry(context.registry, lambda: _nodes(services), lambda: _runs(services))
    share = Share()

    def note() -> None:
        due = [due_ms for service in services.values() if (due_ms := service.next_due_ms()) is not None]
        context.health.progress.next_due_ms = min(due, default=None)
        context.health.progress.busy = not all(cell.is_idle for cell in share.cells.values())

    async def work(cell: str) -> None:
        services[cell] = ExecutorService(
            cell,
            nodes[cell],
            slots,
            report_every_wall_ms=settings.report_every_wall_ms,
            says_by_itself=settings.clock is ClockKind.WALL,
        )
        diaries = keeping(settings, cell, slots)
        executor = CellExecutor(context, log, layout, services[cell], diaries, telemetry, note)
        what = f"the decision log of cell {cell}"
        try:
            if await wait_for(context, what, executor.begin, (LogUnavailable, OSError), about=cell):
                await share.come(executor)
                await executor.run()
        finally:
            await share.go(executor)

    work_on = {
        cell: work_apart(context, layout, cell, lambda cell=cell: work(cell))  # type: ignore[misc]  # mypy and defaults
        for cell in nodes
    }
    await _work(context, work_on, share, log.member(layout.group("executor"), topic))


class Share:
    """Which slots are ours, and the cells whose log is folded, which look after them."""

    def __init__(self) -> None:
        self.cells: dict[str, CellExecutor] = {}
        self._owned: frozenset[int] = frozenset()
        self._tried: dict[str, None] = {}
        self._news = asyncio.Event()

    async def come(self, executor: CellExecutor) -> None:
        """The cell's log is folded: from now on it looks after our slots."""
        self.cells[executor.service.cell] = executor
        self._note(executor.service.cell)
        await executor.assign(self._owned)

    async def go(self, executor: CellExecutor) -> None:
        """The work on the cell has ended: its nodes are let go."""
        self.cells.pop(executor.service.cell, None)
        self._note(executor.service.cell)
        await executor.end()

    def _note(self, cell: str) -> None:
        self._tried[cell] = None
        self._news.set()

    async def tried(self, cells: Collection[str]) -> None:
        """Wait until the log of each of these cells is folded, or has been found to be one that cannot be."""
        while not all(cell in self._tried for cell in cells):
            self._news.clear()
            await self._news.wait()

    async def assign(self, owned: frozenset[int]) -> None:
        """These slots are ours now."""
        self._owned = owned
        for executor in list(self.cells.values()):
            await executor.assign(owned)


async def _work(
    context: Context[ExecutorSettings], work_on: dict[str, Coroutine[Any, Any, None]], share: Share, member: Member
) -> None:
    """Join the group once every cell is folded, and work until the process stops."""
    running = [asyncio.create_task(work, name=f"cell {cell}") for cell, work in work_on.items()]
    running.append(asyncio.create_task(_take_part(context, share, member, list(work_on)), name="slots"))
    stopping = asyncio.create_task(context.stopping.wait(), name="stop asked")
    try:
        await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if context.stopping.is_set():
            await asyncio.gather(*(cell.settle(SETTLE_WAIT_S) for cell in share.cells.values()))
            await share.assign(frozenset())
    finally:
        await member.stop()
        stopping.cancel()
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _take_part(context: Context[ExecutorSettings], share: Share, member: Member, cells: list[str]) -> None:
    """Hand on which slots are ours, whenever that changes."""
    await share.tried(cells)
    if not await joined(context, member):
        return
    context.health.ready()
    while True:
        await share.assign(await member.changed())


def _nodes(services: dict[str, ExecutorService]) -> dict[str, int]:
    return {cell: len(service.agents) for cell, service in services.items()}


def _runs(services: dict[str, ExecutorService]) -> dict[tuple[str, RunStatus], int]:
    return {
        (cell, status): count
        for cell, service in services.items()
        for status, count in service.runs_by_status().items()
    }
