"""Heads that are due in a queue by shares: which of them keep what they wait for from other tenants before their turn.

A tenant's own line says which of its jobs comes first. So a head has such a claim only while no job of its tenant that
stands before it waits for the same: else that job would take what was kept from others who have waited longer. What was
not looked for yet does not wait: it is looked for beside what the head keeps, as jobs of other tenants are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from fallow.services.placement.fit.empty_capacity import Reach, full_of_own, meet, together, without
from fallow.services.placement.queue.heads import WAITED_FOR, Heads, is_due
from fallow.services.placement.queue.lines.course import Course
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.lines.row import Need, RoomRows, Row
from fallow.services.placement.search.reason_precedence import is_of_quota
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.reasons import PendingReason

KINDS_MAX = 2_000
"""So many kinds of jobs are looked at for each tenant that stand before its due heads, the first in order first, once
for all of these heads. A head before which more stand keeps nothing from others.
"""

WAITS = (*WAITED_FOR, PendingReason.BEHIND_HEAD)
"""With these reasons a job was looked for in vain, or kept back, and waits for what others have."""

Due = tuple[Job, Line, Row]


def is_too_far(kinds: int) -> bool:
    """Whether behind so many other kinds of jobs of its tenant nothing is looked at any more."""
    return kinds >= KINDS_MAX


def due_heads(state: CellState, lines: Lines, queue: Queue, now_ms: int) -> list[Due]:
    """The heads of a queue that nothing may pass any more, the longest waiting one first."""
    found, since_ms = list[Due](), state.heads
    for job_id in since_ms:
        job, place = state.jobs[job_id], lines.place_of(job_id)
        is_here = place is not None and place[0].queue is queue
        if place is not None and is_here and is_due(state, job, since_ms[job_id], now_ms):
            found.append((job, *place))
    return sorted(found, key=lambda each: (since_ms[each[0].spec.id], each[0].number))


class InOrder:
    """Where each of some jobs of one tenant, which stand at these places in its line, could use what a head waits for.
    It looks at no more of them than it must.
    """

    __slots__ = ("_any_of", "_reach_at", "orders")

    def __init__(self, orders: list[Order], reach_at: Callable[[int], Reach]) -> None:
        """`reach_at` looks at the one with this number."""
        self.orders, self._reach_at = orders, reach_at
        self._any_of: list[Reach] = [{}]  # where any of the first could, for each number of them

    def first_for(self, order: Order, kept: Reach) -> int | None:
        """The number of the first one before this place that could use any of these nodes; None where none could."""
        any_of, most = self._any_of, bisect_left(self.orders, order)
        known = min(len(any_of) - 1, most)
        if meet(any_of[known], kept):
            return bisect_left(range(known), True, key=lambda at: meet(any_of[at + 1], kept))
        for at in range(known, most):
            reach = self._reach_at(at)
            any_of.append(together(any_of[-1], reach))
            if meet(reach, kept):
                return at
        return None


@dataclass(slots=True)
class _Before:
    """The rows of a line that stand before its last due head, and the place behind which more stand than are looked at;
    None where none do.
    """

    rows: list[Row]
    competing: InOrder
    end: Order | None

    def is_as_it_was(self, at: int) -> bool:
        """Whether the job that was first in this row waits there still."""
        return self.rows[at].first is self.competing.orders[at] and not self.rows[at].is_shut


class OwnBefore:
    """The jobs of the same tenants that stand before due heads of one queue, as one walk looks at them."""

    def __init__(self, state: CellState, lines: Lines, heads: Heads, courses: list[Course]) -> None:
        self._state, self._lines, self._heads = state, lines, heads
        self._course_of = {course.line: course for course in courses}
        self._last: dict[Line, Order] = {}
        self._due: dict[RoomRows, None] = {}
        self._before: dict[Line, _Before] = {}
        self._reach: dict[Row, Reach] = {}
        self._behind: dict[RoomRows, Order] = {}

    def look_for(self, due: list[Due]) -> None:
        """These are the due heads of the queue now."""
        self._last, self._due = {}, {}
        for job, line, row in due:
            order = self._order_of(job)
            self._last[line] = max(order, self._last.get(line, order))
            self._due[row.rows] = None

    def has_one_for(self, job: Job, line: Line, row: Row, code: PendingReason | None, room: Reach) -> bool:
        """Whether a job of its tenant that stands before this head waits for what it waits for by this code, and may
        keep (`room`).
        """
        order = self._order_of(job)
        before = self._before.get(line) or self._begin(line)
        if not before.rows or order <= before.competing.orders[0]:
            return False
        kept = kept_within(self._heads, job, row.rows.need, code, room)
        at = before.competing.first_for(order, kept)
        if at is not None and not before.is_as_it_was(at):  # the walk has come by since
            before = self._begin(line)
            at = before.competing.first_for(order, kept)
        if at is not None:
            first = before.rows[at].rows
            self._behind[first] = min(order, self._behind.get(first, order))
        return at is not None or (before.end is not None and before.end < order)

    def was_last(self, rows: RoomRows) -> bool:
        """A job of these rows has started. Whether none of them stands before such a head any more."""
        order = self._behind.get(rows)
        is_last = order is not None and not rows.before(order)
        if is_last:
            del self._behind[rows]
            self._before.pop(rows.line, None)
        return is_last

    def keeps_behind(self, job: Job, line: Line) -> bool:
        """Whether a head that stands behind this job of its tenant keeps its room from other tenants."""
        last = self._last.get(line)
        return last is not None and self._heads.any_before_turns_of(job.spec.tenant) and self._order_of(job) < last

    def _order_of(self, job: Job) -> Order:
        order = self._lines.order_of(job.spec.id)
        assert order is not None, "a head stands in a line"
        return order

    def _begin(self, line: Line) -> _Before:
        rooms, end = self._course_of[line].first_before(self._last[line], KINDS_MAX)
        self._state.capacity.effort.looks += len(rooms)
        last = self._last[line]
        found = [(each.first, each) for rows in rooms for each in rows.before(last) if each.first is not None]
        found.sort(key=lambda each: each[0])
        rows = [row for _, row in found]
        competing = InOrder([order for order, _ in found], lambda at: self._reach_of(rows[at]))
        before = self._before[line] = _Before(rows, competing, end)
        return before

    def _reach_of(self, row: Row) -> Reach:
        """Where the first job of the row could use what a head of its tenant waits for; nowhere if it does not wait, or
        may never start, or if all jobs of the row have started in this walk.
        """
        if row.first is None:
            return {}
        found = self._reach.get(row)
        if found is None:
            found = self._reach[row] = self._waits_on(row)
        return found

    def _waits_on(self, row: Row) -> Reach:
        assert row.first is not None, "a job waits in it"
        job, need = self._state.jobs[row.first[-1]], row.rows.need
        code = row.code or need.code or _told(job, row)
        return waits_on(self._state, self._heads, job, need, code, is_due=row.rows in self._due)


def kept_within(heads: Heads, job: Job, need: Need, code: PendingReason | None, room: Reach) -> Reach:
    """The nodes that a due head waits for by this code and may keep: of those where it could be these (`room`). Where
    limits keep it, it waits for others to end wherever they are.
    """
    kept = heads.kept_by(job, need, code)
    if is_of_quota(code) or code is PendingReason.RESERVED_FOR_OTHER:
        return kept
    return {name: left for name, mask in kept.items() if (left := mask & room.get(name, 0))}


def waits_on(
    state: CellState, heads: Heads, job: Job, need: Need, code: PendingReason | None, *, is_due: bool
) -> Reach:
    """Where a job that waits for this reason could use what a head behind it in the line of its tenant waits for;
    nowhere if it does not wait, or may never start, whatever it was told, and on no node that holds no more of its
    workers than it has there. At a limit that is all of the GPU types under it where it is a due head itself
    (`is_due`), which the other may not pass.
    """
    if code not in WAITS:
        return {}
    kept = heads.kept_by(job, need, code)
    if is_of_quota(code):
        if is_due:
            return kept
        reach = heads.reach(need, job.spec)
        kept = {name: mask & reach[name] for name, mask in kept.items() if name in reach}
    return without(kept, full_of_own(state, job)) if job.workers else kept


def _told(job: Job, row: Row) -> PendingReason | None:
    """Why a job waits of which the line does not know it now: that heads have kept it off, whatever it was told before;
    else what it was told last. One that runs is told nothing: it waits for the workers that it still wants since the
    first walk behind which it stood in its line, whichever writer made that walk.
    """
    if row.kept_off == job.spec.id:
        return PendingReason.BEHIND_HEAD
    if job.status is JobStatus.QUEUED:
        return job.deferred
    return None if job.spec.id in row.rows.line.fresh else PendingReason.BEHIND_HEAD
