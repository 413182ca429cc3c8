"""The way of one walk along lines: which class is next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from fallow.services.placement.queue.fair_share import Shares
from fallow.services.placement.queue.fair_share_heap import Came, FairShareHeap, came_of
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.row import RoomRows, Row
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.queue_order import Order


class Course:
    """The open rows of one line in the order of their first jobs. Where the line keeps no order it does not come by
    rows for which there is no room: they are off its way until there is some. Nor does it come by elements of arrays
    that may have no more at once, whether or not they were met before: else these would decide ties between tenants.
    """

    __slots__ = ("_aside", "_heap", "_rooms_aside", "_shut_if_full", "line")

    def __init__(self, line: Line, shut_if_full: Callable[[Line, Row], bool]) -> None:
        """`shut_if_full` shuts a row whose array may have no more, and tells whether it did."""
        self.line, self._heap, self._shut_if_full = line, line.heap, shut_if_full
        self._aside: list[Row] = []
        self._rooms_aside: list[RoomRows] = []

    def first(self) -> Row | None:
        """The row whose turn it is; None behind the last one."""
        heap, line = self._heap, self.line
        while heap:
            order, _, rows = heap[0]
            if rows.stands is not order:  # it stands elsewhere now, or nowhere
                heappop(heap)
                continue
            if rows.need.code is not None and not line.keeps_order:
                line.passed[rows] = None
                self._take_off()
                continue
            row = rows.first()
            if row is None or row.first is None:
                self._take_off()
            elif row.is_limited and self._shut_if_full(line, row):
                continue
            elif row.first is order:
                return row
            else:
                rows.stands = row.first
                heapreplace(heap, (row.first, rows.number, rows))
        return None

    def _take_off(self) -> RoomRows:
        rows = heappop(self._heap)[2]
        rows.stands = None
        return rows

    def second(self) -> Order | None:
        """The place of the first job that needs other room than the one whose turn it is."""
        heap = self._heap
        if len(heap) > 2 and heap[2] < heap[1]:  # noqa: PLR2004 - behind the top of a heap
            return heap[2][0]
        return heap[1][0] if len(heap) > 1 else None

    def first_before(self, order: Order, most: int) -> tuple[list[RoomRows], Order | None]:
        """The rooms whose first job stands before this place: the first ones that are still to come, so many at most,
        and those that the walk has passed. Behind them where the first one stands that was left out, None where none
        was. It looks at no others of a line that keeps its order.
        """
        heap, found = self._heap, dict[RoomRows, None]()
        left = [(heap[0][:2], 0)] if heap else []
        end = None
        while left and left[0][0][0] < order:
            (stands, _), at = heappop(left)
            if heap[at][2].stands is stands:
                if len(found) == most:
                    end = stands
                    break
                found[heap[at][2]] = None
            for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(left, (heap[below][:2], below))
        passed = [row.rows for row in self._aside] + self._rooms_aside
        rooms = [*found, *dict.fromkeys(rows for rows in passed if rows not in found and rows.before(order))]
        return rooms, end

    def pass_row(self, row: Row) -> None:
        """Nothing of the row whose turn it is starts in this walk."""
        self._aside.append(row)
        heap = row.rows.heap
        while heap and heap[0][2] is row:  # it stands there again for each time that its first job became the first
            heappop(heap)

    def pass_room(self) -> None:
        """Nothing that needs the room of the row whose turn it is starts in this walk."""
        rows = self._take_off()
        self._rooms_aside.append(rows)
        self.line.passed[rows] = None

    def close(self) -> None:
        """The walk is over: what was passed stands in its place again."""
        for row in self._aside:
            self.line.open(row)
        for rows in self._rooms_aside:
            self.line.stand(rows)
        self._aside, self._rooms_aside = [], []


class Turns(Protocol):
    """Whose turn it is in a queue."""

    courses: list[Course]

    def first(self) -> tuple[Course, Row] | None:
        """The row that is next; None when no row is left."""

    def served(self) -> None:
        """The one whose turn it is has got something."""


class OneLine:
    """A queue with one line for all."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self.courses = [course]

    def first(self) -> tuple[Course, Row] | None:
        """The row that is next; None when no row is left."""
        row = self._course.first()
        return None if row is None else (self._course, row)

    def served(self) -> None:
        """The one whose turn it is has got something."""


class ByShares:
    """A queue in fair-share order: the next job is of the tenant that comes first by shares, and of equal shares of the
    one whose next job came first. A start moves its tenant back; a job that does not start leaves the turn with it,
    unless its next one came later than that of another tenant with an equal share.
    """

    def __init__(self, courses: list[Course], shares: Shares, jobs: Mapping[str, Job]) -> None:
        self.courses, self._jobs = courses, jobs
        self._of = {course.line.tenant: course for course in courses}
        # A tenant of which nothing may start has no turn: else it would decide ties for the others below its parent.
        nexts = {tenant: course.first() for tenant, course in self._of.items()}
        self._came = {tenant: self._next_came(row) for tenant, row in nexts.items() if row is not None}
        self._turns = FairShareHeap(shares, self._came)

    def first(self) -> tuple[Course, Row] | None:
        """The row that is next; None when no row is left."""
        while (tenant := self._turns.first()) is not None:
            course = self._of[tenant]
            row = course.first()
            if row is None:
                self._turns.leave()
                continue
            came = self._next_came(row)
            if came == self._came[tenant]:
                return course, row
            self._came[tenant] = came
            self._turns.moved()
        return None

    def served(self) -> None:
        """The one whose turn it is has got something."""
        tenant = self._turns.first()
        row = None if tenant is None else self._of[tenant].first()
        if tenant is not None and row is not None:
            self._came[tenant] = self._next_came(row)
            self._turns.moved()
        elif tenant is not None:
            self._turns.leave()

    def _next_came(self, row: Row) -> Came:
        return came_of(None if row.first is None else self._jobs[row.first[-1]])
