"""How a service that works per cell shares the cells with its replicas: through a group on the topic `cells`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import joined
from fallow.shared.log.port import Log
from fallow.shared.log.sharing.cell_tasks import CellTasks, Tenure, Work
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.runtime.process import Context

READS = ("cells", "decisions", "snapshots")
"""Which cells are owned, and what a process follows that works on one."""


async def work_on_owned_cells(
    context: Context[Any],
    log: Log,
    layout: Layout,
    group: str,
    work: Work,
    *,
    when_fenced: Callable[[str], Awaitable[None]] | None = None,
) -> None:
    """Do this work for each cell that the process owns in the group, until told to stop. An error in one leaves the
    others alone; `when_fenced` is done for a cell that is fenced.
    """

    async def work_and_let_go(tenure: Tenure) -> None:
        try:
            cell = tenure.cell
            fenced = None if when_fenced is None else lambda: when_fenced(cell)
            await work_apart(context, layout, cell, lambda: work(tenure), when_fenced=fenced)
        finally:
            context.health.let_go(layout.ordinals[tenure.cell])

    context.reads.update(READS)
    member = log.member(layout.group(group), layout.topic("cells"))
    try:
        if await joined(context, member):
            context.health.ready()
            await CellTasks(member, layout, work_and_let_go).run(context.stopping)
    finally:
        await member.stop()
