"""Heads that are due in a queue by shares: which of them keep what they wait for from other tenants before their turn.

A tenant's own line says which of its jobs comes first. So a head has such a claim only while no job of its tenant that
stands before it waits for the same: else that job would take what was kept from others who have waited longer.
"""

from __future__ import annotations

from fallow.services.placement.fit.empty_capacity import meet
from fallow.services.placement.queue.heads import WAITED_FOR, Heads, is_due
from fallow.services.placement.queue.lines.course import Course
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.lines.row import RoomRows, Row
from fallow.services.placement.search.reason_precedence import is_of_quota
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.cluster.model.state import CellState

KINDS_MOST = 2_000
"""So many kinds of jobs that stand before due heads are looked at for each tenant in one walk. A head before which more
stand keeps nothing from others in this walk: those that wait for longest are looked at first.
"""


def due_heads(state: CellState, lines: Lines, queue: Queue, now_ms: int) -> list[tuple[Job, Line, Row]]:
    """The heads of a queue that nothing may pass any more, the longest waiting one first."""
    found, since_ms = list[tuple[Job, Line, Row]](), state.heads
    for job_id in since_ms:
        job, place = state.jobs[job_id], lines.place_of(job_id)
        is_here = place is not None and place[0].queue is queue
        if place is not None and is_here and is_due(state, job, since_ms[job_id], now_ms):
            found.append((job, *place))
    return sorted(found, key=lambda each: (since_ms[each[0].spec.id], each[0].number))


class OwnBefore:
    """The jobs of the same tenants that stand before due heads of one queue, as one walk looks at them."""

    def __init__(self, state: CellState, lines: Lines, heads: Heads, courses: list[Course]) -> None:
        self._state, self._lines, self._heads = state, lines, heads
        self._course_of = {course.line: course for course in courses}
        self._left: dict[Line, int] = {}
        self._behind: dict[RoomRows, Order] = {}

    def has_one_for(self, job: Job, line: Line, row: Row) -> bool:
        """Whether a job of its tenant that stands before this head waits for what it waits for."""
        order = self._lines.order_of(job.spec.id)
        assert order is not None, "a head stands in a line"
        before, left = self._course_of[line].before(order), self._left.get(line, KINDS_MOST)
        if len(before) > left:
            return True
        self._left[line] = left - len(before)
        self._state.capacity.effort.looks += len(before)
        first = next((rows for rows in before if self._compete(rows, order, row, job)), None)
        if first is not None:
            self._behind[first] = min(order, self._behind.get(first, order))
        return first is not None

    def was_last(self, rows: RoomRows) -> bool:
        """A job of these rows has started. Whether none of them stands before such a head any more."""
        order = self._behind.get(rows)
        is_last = order is not None and not rows.before(order)
        if is_last:
            del self._behind[rows]
        return is_last

    def _compete(self, rows: RoomRows, order: Order, row: Row, head: Job) -> bool:
        """Whether any of these jobs that stand before a head could use what it waits for: room, or room below a limit.
        What keeps them for good, or until their own array goes on, keeps no room for them.
        """
        codes = {each: each.code or rows.need.code for each in rows.before(order)}
        waiting = [each for each, code in codes.items() if code is None or code in WAITED_FOR]
        if not waiting or waiting[0].first is None:
            return False
        if is_of_quota(head.deferred) or all(is_of_quota(codes[each]) for each in waiting):
            return True
        spec = self._state.jobs[waiting[0].first[-1]].spec
        return meet(self._heads.reach(rows.need, spec), self._heads.reach(row.rows.need, head.spec))
