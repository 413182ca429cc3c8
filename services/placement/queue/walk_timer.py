"""When a walk comes to something else though nothing has happened: as heads become due, and as others keep less.

A head that becomes due keeps its room from those that passed it until then. That may end what another head kept, or
have it keep less, so that a job starts for which nothing has become free. What a head keeps also shrinks when a node
closes for it, and when what is left to it beside a planned start does. No event says when that is, so the walk
before does: once for each such moment, and not at all where no job waits beside the head.
"""

from __future__ import annotations

from collections.abc import Iterator

from fallow.services.placement.queue.heads import PLAN_WAITS_MAX
from fallow.services.placement.queue.lines.lines import Lines
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.queue import QueueDiscipline


class WalkTimer:
    """Remembers the next moment at which heads keep something else than in the last walk."""

    __slots__ = ("next_cell_ms",)

    def __init__(self) -> None:
        self.next_cell_ms: int | None = None
        """When a walk is due though nothing happens; None while none is."""

    def walked(self, state: CellState, lines: Lines, now_ms: int, changes_ms: int | None) -> None:
        """All queues are walked with the heads that are due now; what these keep is another thing at `changes_ms`, as
        far as it does not go by when they are due (None: at no time).
        """
        self.next_cell_ms = None
        if lines.count > 1:
            moments = [at_ms for at_ms in _moments(state, lines) if at_ms > now_ms]
            self.next_cell_ms = min([*moments, *([] if changes_ms is None else [changes_ms])], default=None)

    def is_due(self, now_ms: int) -> bool:
        """Whether heads may keep something else now."""
        return self.next_cell_ms is not None and self.next_cell_ms <= now_ms


def _moments(state: CellState, lines: Lines) -> Iterator[int]:
    """When heads become due by their waits, or by their planned starts, and when what is kept for these ends. A job
    that waits for the same as a head goes by the wait of that head, with or without a planned start of its own.
    """
    wait_ms = state.policy.backfill_wait_ms
    first_ms = [kept.first_ms for kept in state.reservations.values() if kept.workers and kept.first_ms is not None]
    last_ms = max(first_ms, default=0)
    for job_id, since_ms in state.heads.items():
        place = lines.place_of(job_id)
        if place is not None and place[0].queue.discipline is QueueDiscipline.BACKFILL:
            yield since_ms + wait_ms
            if since_ms + PLAN_WAITS_MAX * wait_ms < last_ms:
                yield since_ms + PLAN_WAITS_MAX * wait_ms
    yield from first_ms
