"""The projector's process: opens the log and Redis, and projects the cells that it owns."""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.projector.app.cell import CellProjector
from fallow.services.projector.app.fence import tell_readers
from fallow.services.projector.app.metrics import ProjectorMetrics
from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.log.opening import OpenLog, layout_for, open_log
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.sharing.owned_cells import work_on_owned_cells
from fallow.shared.runtime.process import Context
from fallow.shared.view.keys import keys_of
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import CellView, OpenFunctions


def redis_of(context: Context[ProjectorSettings]) -> OpenFunctions:
    """The functions of the Redis of the settings. The projector puts them there."""

    def told(text: str | None) -> None:
        context.health.noted("how Redis is set up", text)
        if text is not None:
            context.logger.warning(text)

    return RedisFunctions(context.settings.redis.get_secret_value(), loads=True, told=told)


async def main(
    context: Context[ProjectorSettings],
    opening: OpenLog = open_log,
    viewing: Callable[[Context[ProjectorSettings]], OpenFunctions] = redis_of,
) -> None:
    """Keep the owned cells' views equal to their logs until told to stop. `viewing` gives the view's functions."""
    settings = context.settings
    file = context.host.cell_file(settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    layout, metrics = layout_for(context, file), ProjectorMetrics(context.registry)
    functions = viewing(context)

    async def work(tenure: Tenure) -> None:
        await CellProjector(context, log, layout, functions, metrics, tenure).run()

    async def when_fenced(cell: str) -> None:
        await tell_readers(context, CellView(functions, keys_of(settings.namespace, cell)), cell)

    try:
        await work_on_owned_cells(context, log, layout, "projector", work, when_fenced=when_fenced)
    finally:
        await functions.stop()
        await log.stop()
