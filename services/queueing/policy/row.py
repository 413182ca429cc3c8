"""The waiting jobs of one equivalence class in their order, and how many of them a window shows."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from shared.cluster.queue_order import Order

GAP_MOST = 1_000
"""So many places at the front stay empty before the row moves up."""


class Shown(NamedTuple):
    """The least and the most jobs of a class that a window shows.

    In between it is twice as many as left the row between two windows: while a window is under way, its readers shall
    still see jobs that wait.
    """

    least: int
    most: int


class Row:
    """A row is short or long. The usual changes, a new last and a first that leaves, cost the same in both."""

    __slots__ = ("_first", "_jobs", "_left", "_shown", "most")

    def __init__(self, shown: Shown) -> None:
        self._jobs: list[Order] = []
        self._first = 0
        self._left = 0
        self._shown = shown
        self.most = shown.least
        """So many jobs were shown by the last window, if there were so many."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._jobs) - self._first

    def add(self, order: Order) -> bool:
        """Put a job in its place. Whether the last window would show it, or would be cut by it."""
        jobs = self._jobs
        if len(jobs) == self._first or jobs[-1] < order:
            jobs.append(order)
            at = len(jobs) - 1
        else:
            at = bisect_left(jobs, order, self._first)
            jobs.insert(at, order)
        return at - self._first < self.most or len(self) == self.most + 1

    def remove(self, order: Order) -> bool:
        """Take a job out. Whether another one comes into what is shown by that, or the head is no longer cut.

        Without the latter, a window would show a cut behind which no job stands.
        Raises KeyError for a job that is not here.
        """
        jobs, first = self._jobs, self._first
        at = bisect_left(jobs, order, first)
        if at == len(jobs) or jobs[at] != order:
            raise KeyError(order[-1])
        if at == first:
            self._drop_first()
        else:
            del jobs[at]
        self._left += 1
        return len(self) == self.most or at - first < self.most <= len(self)

    def _drop_first(self) -> None:
        self._first += 1
        if self._first >= GAP_MOST or self._first == len(self._jobs):
            del self._jobs[: self._first]
            self._first = 0

    def adapt(self, enough: int) -> None:
        """A window is made now: let it show as many as leave until the next one, and somewhat more. Where `enough` is
        below the least, it is shown instead: there are many rows.
        """
        least, most = self._shown
        self.most = max(min(least, enough), min(most, 2 * self._left), self.most * 3 // 4)
        self._left = 0

    def head(self) -> list[Order]:
        """The jobs that a window shows."""
        return self._jobs[self._first : self._first + self.most]
