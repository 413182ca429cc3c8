"""The executor's main coroutine: its share of the slots, one `CellExecutor` for each cell with nodes, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.executor.app.cell import CellExecutor
from services.executor.nodes_file import load_nodes
from services.executor.service import ExecutorService
from services.executor.settings import ExecutorSettings
from services.executor.telemetry import ExecutorTelemetry
from shared.cluster.config import CellFile
from shared.events.values import NodeSpec, RunStatus
from shared.log.opening import joined, layout_of, open_log
from shared.log.port import Log, LogUnavailable, Member
from shared.runtime.cell_file import load_cell_file
from shared.runtime.process import Context, wait_for
from shared.runtime.settings import ClockKind

SLOTS_TOPIC = "executor-slots"
SETTLE_WAIT_S = 3.0


async def main(context: Context[ExecutorSettings]) -> None:
    """Run one executor until the process stops. Raises CellFileError, NodesFileError."""
    file = load_cell_file(context.settings.cell_file)
    nodes = load_nodes(context.settings.nodes_file)
    log = await open_log(context, file)
    if log is not None:
        try:
            await execute(context, log, file, nodes)
        finally:
            await log.stop()


async def execute(
    context: Context[ExecutorSettings], log: Log, file: CellFile, nodes: Mapping[str, tuple[NodeSpec, ...]]
) -> None:
    """The same on any log that is started. Raises ValueError for nodes of a cell that the cell file does not have."""
    settings = context.settings
    layout = layout_of(file, settings.namespace)
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
    services = {
        cell: ExecutorService(
            cell,
            specs,
            slots,
            report_every_wall_ms=settings.report_every_wall_ms,
            says_by_itself=settings.clock is ClockKind.WALL,
        )
        for cell, specs in nodes.items()
    }
    telemetry = ExecutorTelemetry(context.registry, lambda: _nodes(services), lambda: _runs(services))
    cells: list[CellExecutor] = []

    def note() -> None:
        due = [due_ms for service in services.values() if (due_ms := service.next_due_ms()) is not None]
        context.health.progress.next_due_ms = min(due, default=None)
        context.health.progress.busy = not all(cell.is_idle for cell in cells)

    cells.extend(CellExecutor(context, log, layout, service, telemetry, note) for service in services.values())
    if await wait_for(context, "the decision log", lambda: _caught_up(cells), errors=(LogUnavailable, OSError)):
        await _work(context, cells, log.member(layout.group("executor"), topic))


async def _caught_up(cells: list[CellExecutor]) -> None:
    for cell in cells:
        await cell.start()


async def _work(context: Context[ExecutorSettings], cells: list[CellExecutor], member: Member) -> None:
    if not await joined(context, member):
        return
    running = [asyncio.create_task(cell.run(), name=f"cell {cell.service.cell}") for cell in cells]
    running.append(asyncio.create_task(_share(member, cells), name="slots"))
    stopping = asyncio.create_task(context.stopping.wait(), name="stop asked")
    context.health.ready()
    try:
        await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if context.stopping.is_set():
            await asyncio.gather(*(cell.settle(SETTLE_WAIT_S) for cell in cells))
            for cell in cells:
                await cell.assign(frozenset())
    finally:
        await member.stop()
        stopping.cancel()
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _share(member: Member, cells: list[CellExecutor]) -> None:
    """Hand on which slots are ours, whenever that changes."""
    while True:
        owned = await member.changed()
        for cell in cells:
            await cell.assign(owned)


def _nodes(services: dict[str, ExecutorService]) -> dict[str, int]:
    return {cell: len(service.agents) for cell, service in services.items()}


def _runs(services: dict[str, ExecutorService]) -> dict[tuple[str, RunStatus], int]:
    return {
        (cell, status): count
        for cell, service in services.items()
        for status, count in service.runs_by_status().items()
    }
