"""The projector's process: opens the log and Redis, and projects the cells that it owns."""

from __future__ import annotations

from services.projector.app.cell import CellProjector
from services.projector.app.metrics import ProjectorMetrics
from services.projector.settings import ProjectorSettings
from shared.log.cell_tasks import Tenure
from shared.log.opening import layout_of, open_log
from shared.log.owned_cells import work_on_owned_cells
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

    async def work(tenure: Tenure) -> None:
        await CellProjector(context, log, layout, functions, metrics, tenure).run()

    try:
        await work_on_owned_cells(context, log, layout, "projector", work)
    finally:
        await functions.stop()
        await log.stop()
