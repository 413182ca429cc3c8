"""The way of one walk along lines: which class is next."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from services.placement.policy.fair_share import Shares
from services.placement.policy.lines.line import Line
from services.placement.policy.lines.row import RoomRows, Row
from services.placement.policy.tournament import Came, Tournament, came_of
from shared.cluster.job import Job
from shared.cluster.queue_order import Order

Entry = tuple[Order, int, RoomRows]


class Course:
    """The open rows of one line in the order of their first jobs. Unless it `sees_all`, it does not come by rows for
    which there is no room; `passed` are these, by room.
    """

    __slots__ = ("_aside", "_heap", "_sees_all", "line", "passed")

    def __init__(self, line: Line, *, sees_all: bool) -> None:
        self.line, self._sees_all = line, sees_all
        self.passed: list[RoomRows] = []
        self._aside: list[Row] = []
        self._heap: list[Entry] = []
        for rows in line.by_room.values():
            row = rows.first()
            if row is not None and row.first is not None:
                self._heap.append((row.first, rows.number, rows))
        heapify(self._heap)

    def first(self) -> Row | None:
        """The row whose turn it is; None behind the last one."""
        heap = self._heap
        while heap:
            order, _, rows = heap[0]
            if rows.need.code is not None and not self._sees_all:
                self.passed.append(rows)
                heappop(heap)
                continue
            row = rows.first()
            if row is None or row.first is None:
                heappop(heap)
            elif row.first is order:
                return row
            else:
                heapreplace(heap, (row.first, rows.number, rows))
        return None

    def second(self) -> Order | None:
        """The place of the first job that needs other room than the one whose turn it is."""
        heap = self._heap
        if len(heap) > 2 and heap[2] < heap[1]:  # noqa: PLR2004 - behind the top of a heap
            return heap[2][0]
        return heap[1][0] if len(heap) > 1 else None

    def enter(self, row: Row) -> None:
        """A job has come to this row on the way."""
        if row.first is not None:
            heappush(self._heap, (row.first, row.rows.number, row.rows))

    def pass_row(self, row: Row) -> None:
        """Nothing of the row whose turn it is starts in this walk."""
        self._aside.append(row)
        heappop(row.rows.heap)

    def pass_room(self) -> None:
        """Nothing that needs the room of the row whose turn it is starts in this walk."""
        self.passed.append(heappop(self._heap)[2])

    def end(self) -> None:
        """Nothing of the line starts any more in this walk."""
        self._heap = []

    def close(self) -> None:
        """The walk is over: what was passed stands in its place again."""
        for row in self._aside:
            row.rows.push(row)
        self._aside = []


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
        # A tenant of whom nothing may start has no turn: else it would decide ties for the others below its parent.
        nexts = {tenant: course.first() for tenant, course in self._of.items()}
        self._came = {tenant: self._next_came(row) for tenant, row in nexts.items() if row is not None}
        self._turns = Tournament(shares, self._came)

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
