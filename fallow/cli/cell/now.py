"""How late it is for a cell: no decision says so while it is at rest."""

from __future__ import annotations

from collections.abc import Callable

from fallow.shared.events.base import CALENDAR_FROM_MS
from fallow.shared.runtime.clocks import wall_ms


def cell_now_ms(newest_ms: int, wall: Callable[[], int] = wall_ms) -> int:
    """The cell's time now, as far as it is known from its newest decision: a cell that runs by the calendar may have
    been quiet since; for one that counts from an origin of its own, the command knows no later time.
    """
    return max(newest_ms, wall()) if newest_ms >= CALENDAR_FROM_MS else newest_ms
