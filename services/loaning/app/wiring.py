"""Loaning's process: for each cell that it owns, follow the log, and propose which running jobs yield to waiting ones.

Placement looks at each proposal on the newest state and decides. Where this process is late or away nobody yields, and
all else goes on.
"""

from __future__ import annotations

from fallow.services.loaning.app.cell import CellProposer, LoaningMetrics
from fallow.services.loaning.settings import LoaningSettings
from fallow.shared.log.opening import OpenLog, layout_for, open_log
from fallow.shared.log.sharing.cell_tasks import Tenure
from fallow.shared.log.sharing.owned_cells import work_on_owned_cells
from fallow.shared.runtime.process import Context


async def main(context: Context[LoaningSettings], opening: OpenLog = open_log) -> None:
    """Propose for the owned cells until told to stop."""
    file = context.host.cell_file(context.settings.cell_file)
    log = await opening(context, file)
    if log is None:
        return
    layout, metrics = layout_for(context, file), LoaningMetrics(context.registry)

    async def work(tenure: Tenure) -> None:
        await CellProposer(context, log, layout, file, tenure, metrics).run()

    try:
        await work_on_owned_cells(context, log, layout, "loaning", work)
    finally:
        await log.stop()
