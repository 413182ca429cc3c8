"""The state as it would be if some jobs had stopped: placement's own search says whether the waiting one fits then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fallow.services.placement.search.elsewhere import place_job
from fallow.services.placement.search.gang import Places, place_gang
from fallow.shared.cluster.fold.allocation import release, take
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.reasons import PendingReason


@contextmanager
def without(state: CellState, jobs: Iterable[Job]) -> Iterator[None]:
    """The state without what these jobs hold, and behind that as it was."""
    mark = state.checkpoint()
    try:
        leave(state, jobs)
        yield
    finally:
        state.rollback(mark)


def leave(state: CellState, jobs: Iterable[Job]) -> None:
    """Let these jobs give back all that they hold."""
    for job in jobs:
        release(state, job.spec.tenant, job.spec.id, job.workers + job.joining)


def enters(state: CellState, job: Job, places: Places) -> bool:
    """Let the waiting job have these places; False where it may not, and nothing has changed."""
    mark = state.checkpoint()
    if take(state, job.spec.tenant, job.spec.id, places) is None:
        state.commit(mark)
        return True
    state.rollback(mark)
    return False


class Trial:
    """Tries the waiting job on states in which others have stopped. `left` is how often it still may."""

    __slots__ = ("_job", "_state", "left")

    def __init__(self, state: CellState, job: Job, tries: int) -> None:
        self._state, self._job, self.left = state, job, tries

    def places_without(self, victims: Iterable[Job]) -> Places | PendingReason:
        """Where it would start once these have gone; or why not."""
        self.left -= 1
        with without(self._state, victims):
            return fit(self._state, self._job)


def fit(state: CellState, job: Job) -> Places | PendingReason:
    """Where placement would start the job in this state; or why it would not."""
    return place_job(state, job) if job.avoid else place_gang(state, job.spec)
