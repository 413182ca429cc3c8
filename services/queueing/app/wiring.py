"""Queueing's process: for each cell that it owns, follow the log, publish now and then which jobs are next and when
jobs that do not fit would start, and write snapshots of the state.

Placement keeps the lines itself and waits for no plan; so where this process is late or away, nothing starts later.
What it keeps for planned starts lapses when no plan comes for long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fallow.services.queueing.app.cell import CellPlanner, QueueingMetrics
from fallow.services.queueing.app.snapshots import Keeper, SnapshotMetrics
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.opening import OpenLog, layout_for, open_log, topics_file
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.sharing.owned_cells import work_on_owned_cells
from fallow.shared.runtime.process import Context


def declared_retention_ms(file: CellFile) -> int | None:
    """For how long decisions are kept that a snapshot covers; None for ever."""
    return topics_file(file).retention_ms("decisions")


async def main(
    context: Context[QueueingSettings],
    opening: OpenLog = open_log,
    retention_ms_of: Callable[[CellFile], int | None] = declared_retention_ms,
) -> None:
    """Plan the owned cells' queues, and keep their snapshots, until told to stop. The embedded broker does not compact:
    there are no snapshots there.
    """
    file = context.host.cell_file(context.settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    layout, metrics = layout_for(context, file), QueueingMetrics(context.registry)
    retention_ms, snapshot_metrics = retention_ms_of(file), SnapshotMetrics(context.registry)

    async def work(tenure: Tenure) -> None:
        keeping = partial(Keeper, context, log, layout, snapshot_metrics, tenure, retention_ms)
        is_kept = not context.settings.embedded
        await CellPlanner(context, log, layout, file, tenure, metrics, keeping if is_kept else None).run()

    try:
        await work_on_owned_cells(context, log, layout, "queueing", work)
    finally:
        await log.stop()
