"""The executor's main coroutine: its share of the slots, one `CellExecutor` for each cell with nodes, and the end."""

from __future__ import annotations

import asyncio

from services.executor.app.cell import CellExecutor
from services.executor.nodes_file import load_nodes
from services.executor.service import ExecutorService
from services.executor.settings import ExecutorSettings
from services.executor.telemetry import ExecutorTelemetry
from shared.events.values import RunStatus
from shared.log.layout import Layout
from shared.log.opening import log_for
from shared.log.port import Log, LogUnavailable, Member
from shared.runtime.cell_file import load_cell_file
from shared.runtime.process import Context, wait_for
from shared.runtime.settings import ClockKind

SLOTS_TOPIC = "executor-slots"
SETTLE_WAIT_S = 3.0


async def main(context: Context[ExecutorSettings]) -> None:
    """Run one executor until the process stops. Raises CellFileError, NodesFileError."""
    log = log_for(context.settings.kafka, context.instance, embedded=context.settings.embedded)
    if await wait_for(context, "Kafka", lambda: _started(log), errors=(LogUnavailable, OSError)):
        try:
            await execute(context, log)
        finally:
            await log.stop()


async def _started(log: Log) -> None:
    await log.start()


async def execute(context: Context[ExecutorSettings], log: Log) -> None:
    """The same on any log that is started."""
    settings = context.settings
    nodes = load_nodes(settings.nodes_file)
    layout = layout_of(settings)
    unknown = [cell for cell in nodes if cell not in layout.ordinals]
    if unknown:
        raise ValueError(f"{settings.nodes_file}: cell = {unknown[0]!r}: is not defined in {settings.cell_file}")
    topic = layout.topic(SLOTS_TOPIC)

    async def is_missing() -> str | None:
        return None if await log.partitions(topic) else f"{topic} is missing"

    if not await wait_for(context, f"topic {topic}", is_missing, errors=(LogUnavailable, OSError)):
        return
    slots = await log.partitions(topic)
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


def layout_of(settings: ExecutorSettings) -> Layout:
    """The topics of these settings' namespace, with the ordinals of the cell file."""
    cells = load_cell_file(settings.cell_file).cells
    return Layout(settings.namespace, {cell.name: cell.ordinal for cell in cells})


async def _caught_up(cells: list[CellExecutor]) -> None:
    for cell in cells:
        await cell.start()


async def _work(context: Context[ExecutorSettings], cells: list[CellExecutor], member: Member) -> None:
    if not await wait_for(context, "the group", lambda: _joined(member), errors=(LogUnavailable, OSError)):
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


async def _joined(member: Member) -> None:
    await member.start()


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
