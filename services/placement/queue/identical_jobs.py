"""Jobs that need the same room and start one behind the other are placed together: where one of them fits does not
depend on whose it is, and each but the first costs next to nothing.
"""

from __future__ import annotations

from fallow.services.placement.queue.lines.course import Course
from fallow.services.placement.queue.lines.row import Need, Row
from fallow.services.placement.search.gang import Places, place_alike
from fallow.services.placement.search.quota_check import refusal_of_places
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec

TOGETHER_MAX = 64


class BatchPlacement:
    """Places found for the next jobs that need one room. They hold while nothing but these jobs starts, and no node is
    full of starts by that.
    """

    __slots__ = ("_allowed", "_changes", "_places", "_room", "_taken")

    def __init__(self) -> None:
        self._room: object = None
        self._places: list[Places] = []
        self._changes = 0
        self._taken: Places | None = None
        self._allowed: Row | None = None
        """The row of which quotas let as many start as there are places: until a job of another one starts."""

    def starts_in(self, places: Places) -> None:
        """A job starts in these places. If they are not the ones taken last, those that are left may overlap them."""
        if places is not self._taken:
            self._places = []

    def has(self, state: CellState, room: Need) -> bool:
        """Whether places are left that were found for jobs that need this room, and hold."""
        if not self._places or self._room is not room:
            return False
        return state.unacknowledged is None or self._changes == state.unacknowledged.changes

    def take(self, state: CellState, course: Course, row: Row, job: Job) -> Places | None:
        """A place for this job, the first of its row, if it comes with others; else None."""
        if job.avoid:
            return None
        if not self.has(state, row.rows.need):
            if row.is_lonely or not _comes_with_others(job.spec):
                self._room = None
                return None
            self._look(state, course, row, job.spec)
            self._changes = 0 if state.unacknowledged is None else state.unacknowledged.changes
            if not self._places:
                return None
        return self.next(state, row, job)

    def next(self, state: CellState, row: Row, job: Job) -> Places | None:
        """The next of the places that were found, for the first job of a row that needs this room."""
        places = self._places[-1]
        if row is not self._allowed:
            if state.quotas and refusal_of_places(state, job.spec, places) is not None:
                return None
            self._allowed = None
        self._taken = self._places.pop()
        return self._taken

    def _look(self, state: CellState, course: Course, row: Row, spec: JobSpec) -> None:
        """Look for places for this job and as many behind it as may start next, by what started together before."""
        rows, were_all_used = row.rows, self._room is row.rows.need and not self._places
        if len(rows.rows) == 1:
            second = course.second()
            most = len(row) if second is None else row.count_before(second, TOGETHER_MAX)
        else:
            rows.together = most = min(TOGETHER_MAX, 2 * rows.together) if were_all_used else 1
        self._room, self._places, self._allowed = rows.need, [], row if len(rows.rows) == 1 else None
        if most > 1:
            found = place_alike(state, spec, min(most, TOGETHER_MAX), are_of_one_tenant=self._allowed is row)
            self._places = [(place,) for place in reversed(found)]


def _comes_with_others(spec: JobSpec) -> bool:
    """Whether it is one worker of whole GPUs with no wish for a place and none to be alone there."""
    return spec.workers == 1 and spec.resources.gpu_milli >= GPU and spec.topology is None and not spec.exclusive
