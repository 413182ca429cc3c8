"""The projector's process: opens the log and Redis, and projects the cells that it owns."""

from __future__ import annotations

from services.projector.app.cell import CellProjector
from services.projector.app.metrics import ProjectorMetrics
from services.projector.settings import ProjectorSettings
from shared.log.cell_tasks import CellTasks, Tenure
from shared.log.opening import joined, layout_of, open_log
from shared.runtime.cell_file import load_cell_file
from shared.runtime.process import Context
from shared.view.redis_view import RedisFunctions


async def main(context: Context[ProjectorSettings]) -> None:
    """Keep the owned cells' views equal to their logs until told to stop."""
    settings = context.settings
    file = load_cell_file(settings.cell_file)
    log = await open_log(context, file)
    if log is None:
        return
    layout, metrics = layout_of(file, settings.namespace), ProjectorMetrics(context.registry)
    functions = RedisFunctions(settings.redis, loads=True)
    member = log.member(layout.group("projector"), layout.topic("cells"))

    async def work(tenure: Tenure) -> None:
        await CellProjector(context, log, layout, functions, metrics, tenure).run()

    try:
        if not await joined(context, member):
            return
        context.health.ready()
        await CellTasks(member, layout, work).run(context.stopping)
    finally:
        await member.stop()
        await functions.stop()
        await log.stop()
