"""Placement's process: follows every cell, and writes those that it owns.

Who should write is said by the group on the topic `cells`; who did write, by the log. A standby folds along and so
takes over warm.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from fallow.services.placement.app.cell_writer import CellWriter, Deciding
from fallow.services.placement.app.intake import PLANS
from fallow.services.placement.app.metrics import PlacementMetrics
from fallow.services.placement.app.ownership import Ownership
from fallow.services.placement.app.signing import tell_of_unsigned
from fallow.services.placement.service import PlacementService
from fallow.services.placement.settings import PlacementSettings, check_cells
from fallow.shared.cluster.model.config import CellPart
from fallow.shared.events.decisions import INPUTS
from fallow.shared.log.opening import OpenLog, joined, layout_for, open_log
from fallow.shared.log.sharing.cell_work import work_apart
from fallow.shared.runtime.process import Context
from fallow.shared.runtime.tasks.together import together

READS = ("cells", "decisions", "snapshots", *INPUTS, PLANS)


async def main(
    context: Context[PlacementSettings], opening: OpenLog = open_log, deciding: Deciding = PlacementService
) -> None:
    """Follow and write until told to stop. An error in one cell leaves the others alone. Raises SettingsError."""
    context.reads.update(READS)
    file = context.host.cell_file(context.settings.cell_file)
    check_cells(context.settings, file)
    log = await opening(context, file)
    if log is None:
        return
    tell_of_unsigned(context, file)
    layout, metrics = layout_for(context, file), PlacementMetrics(context.registry)
    member = log.member(layout.group("placement"), layout.topic("cells"))
    owned = Ownership(member)
    writers: dict[str, CellWriter] = {}

    async def work(cell: CellPart) -> None:
        writer = writers[cell.name] = CellWriter(context, log, file, cell, owned, metrics, deciding)
        await writer.run()

    def apart(cell: CellPart) -> Coroutine[Any, Any, None]:
        return work_apart(context, layout, cell.name, lambda: work(cell))

    try:
        if not await joined(context, member):
            return
        await together(
            context.stopping,
            until_stopped={f"cell {cell.name}": apart(cell) for cell in file.cells},
            cut_off={
                "ownership": watch_ownership(context, owned, writers),
                "wake": wake_at_the_end(context, writers),
            },
        )
    finally:
        await member.stop()
        await log.stop()


async def watch_ownership(
    context: Context[PlacementSettings], owned: Ownership, writers: Mapping[str, CellWriter]
) -> None:
    """Keep up with the group, until cancelled."""
    while True:
        context.logger.info("cells to write", partitions=await owned.changed())
        for writer in writers.values():
            writer.wake()


async def wake_at_the_end(context: Context[PlacementSettings], writers: Mapping[str, CellWriter]) -> None:
    """A writer that only waits for news of the log ends at once when the process is to stop."""
    await context.stopping.wait()
    for writer in writers.values():
        writer.wake()
