"""When the order of a queue in fair-share order changes by itself: at the ticks at which what was used counts less.

Where jobs may pass one that does not fit, another order starts no job. In a strict queue, or one that backfills, it may
put another job first, which fits.
"""

from __future__ import annotations

from fallow.shared.cluster.model.config import CellPart
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.fair_use import tick_ms
from fallow.shared.events.queue import QueueDiscipline, QueueOrder

APART_MS_LEAST = 100
"""Ticks of a short half-life are passed over until the next walk is so much later: each costs a walk."""


class FairShareTimer:
    """Remembers up to which moment the order of the last walk holds."""

    __slots__ = ("_walked_ms", "matters")

    def __init__(self, part: CellPart) -> None:
        self._walked_ms = 0
        self.matters = any(
            queue.order is QueueOrder.FAIR_SHARE and queue.discipline is not QueueDiscipline.BEST_EFFORT_FIFO
            for queue in part.queues
        )
        """Whether another order may let a job start: also one by what was started behind a queue, so after starts
        there is another walk, until there are none.
        """

    def walked(self, now_ms: int) -> None:
        """All queues are walked in the order of now."""
        self._walked_ms = now_ms

    def changes_behind(self, state: CellState) -> bool:
        """Whether this decision sets another half-life: what was used counts by it once the decision is in force, which
        is behind its walk.
        """
        return self.matters and state.policy.fair_half_life_ms != state.fair.half_life_ms

    def is_due(self, state: CellState, now_ms: int, *, are_rivals: bool) -> bool:
        """Whether the order of the last walk may hold no longer."""
        due_ms = self.next_cell_ms(state, are_rivals=are_rivals)
        return due_ms is not None and due_ms <= now_ms

    def next_cell_ms(self, state: CellState, *, are_rivals: bool) -> int | None:
        """When a walk is due though nothing happens; None while no order changes by itself: no job waits beside
        another tenant (`are_rivals`), or no tick changes what counts as used any more.
        """
        half_life_ms = state.fair.half_life_ms
        if not self.matters or not half_life_ms or not are_rivals or state.fair.is_settled(self._walked_ms):
            return None
        tick = tick_ms(half_life_ms)
        apart_ms = -(-APART_MS_LEAST // tick) * tick
        return (self._walked_ms // apart_ms + 1) * apart_ms
