"""How a service that works per cell shares the cells with its replicas: through a group on the topic `cells`."""

from __future__ import annotations

from typing import Any

from shared.log.cell_tasks import CellTasks, Tenure, Work
from shared.log.cell_work import work_apart
from shared.log.layout import Layout
from shared.log.opening import joined
from shared.log.port import Log
from shared.runtime.process import Context


async def work_on_owned_cells(context: Context[Any], log: Log, layout: Layout, group: str, work: Work) -> None:
    """Do this work for each cell that the process owns in the group, until told to stop. An error in one leaves the
    others alone.
    """

    async def work_and_let_go(tenure: Tenure) -> None:
        try:
            await work_apart(context, layout, tenure.cell, lambda: work(tenure))
        finally:
            context.health.let_go(layout.ordinals[tenure.cell])

    member = log.member(layout.group(group), layout.topic("cells"))
    try:
        if await joined(context, member):
            context.health.ready()
            await CellTasks(member, layout, work_and_let_go).run(context.stopping)
    finally:
        await member.stop()
