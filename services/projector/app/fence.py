"""What the projector still does for a cell that is fenced: it tells the readers of the view."""

from __future__ import annotations

from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.runtime.process import Context
from fallow.shared.view.store import CellView, ViewMisused, ViewUnavailable

FIRST_S = 0.25


async def tell_readers(context: Context[ProjectorSettings], view: CellView, cell: str) -> None:
    """Mark the view, which stays as it is. While Redis is away it is tried again, until the process is to stop."""
    pause, away_for = context.back_off(FIRST_S), None
    while True:
        try:
            await view.fence(is_fenced=True)
        except (ViewUnavailable, ViewMisused) as error:
            if str(error) != away_for:
                away_for = str(error)
                context.logger.warning("readers do not know yet that the cell is fenced", cell=cell, reason=away_for)
            if not await context.pause(pause.next_s()):
                return
        else:
            return
