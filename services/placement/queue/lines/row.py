"""The waiting jobs of one class in one line, in their order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from fallow.services.placement.queue.lines.classes import Key
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.events.reasons import PendingReason

if TYPE_CHECKING:
    from fallow.services.placement.queue.lines.line import Line

_GAP_LEAST = 32
_STALE_LEAST = 16


Ask = tuple[tuple[str, ...], str | None, int]
"""The pools, the GPU type, and how many whole GPUs a worker wants on one node."""


class InVain(NamedTuple):
    """A look for places on these nodes, `beside` those that heads wait for, which found none for this reason. It holds
    until more is free than then (`Lines.freed`).
    """

    freed: int
    code: PendingReason
    beside: Mapping[str, int]

    def holds_for(self, beside: Mapping[str, int]) -> bool:
        """Whether these nodes are among those that were looked at. Both are masks over pools' numbers."""
        return all(not mask & ~self.beside.get(name, 0) for name, mask in beside.items())


class Need:
    """The room that some classes need, in all lines of the cell. `code` tells why there is none, None where there may
    be some; `rooms` are the rows that need it, by line. `owner` is the tenant of all of them, "" where several need it,
    and `ask` what each of their workers wants. `reach` is where it could be, with the marks of the nodes for which
    that holds. `in_vain` is when it was looked for last beside the heads that keep it from the rest.
    """

    __slots__ = ("ask", "code", "in_vain", "key", "owner", "reach", "rooms", "tries")

    def __init__(self, key: Key, owner: str, ask: Ask) -> None:
        self.key, self.owner, self.ask = key, owner, ask
        self.rooms: dict[RoomRows, None] = {}
        self.code: PendingReason | None = None
        self.reach: tuple[list[object], dict[str, int]] | None = None
        self.in_vain: InVain | None = None
        self.tries = 1
        """As how many tries the last look for places counted."""


class Row:
    """The jobs of a class. `first` is the next job, None while no job waits. `code` tells why the whole class waits, if
    that is not for room, and `is_shut` whether the walk does not come by until something changes.
    """

    __slots__ = (
        "_at",
        "_jobs",
        "code",
        "first",
        "in_vain",
        "is_limited",
        "is_shut",
        "kept_off",
        "key",
        "number",
        "rows",
        "tried",
        "tries",
    )

    def __init__(self, key: Key, number: int, rows: RoomRows, *, is_limited: bool) -> None:
        self.key, self.number, self.rows, self.is_limited = key, number, rows, is_limited
        self._jobs: list[Order] = []
        self._at = 0
        self.first: Order | None = None
        self.code: PendingReason | None = None
        self.is_shut = False
        self.in_vain: InVain | None = None
        """As `RoomRows.in_vain`, for a reason of its own."""
        self.tried = -1
        """In which round of tries (`Lines.tries`) it was looked for so last."""
        self.tries = 1
        """As `RoomRows.tries`."""
        self.kept_off = ""
        """The job of it, if any, that a due head of its own tenant which stands behind it has kept off last, or of
        which any head has kept off the workers that it still wants while it runs.
        """

    def __len__(self) -> int:
        """How many wait."""
        return len(self._jobs) - self._at

    @property
    def is_lonely(self) -> bool:
        """Whether no other job of the line needs the room of the one that waits here."""
        return len(self._jobs) - self._at == 1 and len(self.rows.rows) == 1

    def add(self, order: Order) -> bool:
        """Put a job in its place. Whether it is the first one now."""
        jobs = self._jobs
        if self.first is None or jobs[-1] < order:
            jobs.append(order)
        else:
            insort(jobs, order, self._at)
        first = jobs[self._at]
        is_first, self.first = first is not self.first, first
        return is_first

    def remove(self, order: Order) -> bool:
        """Take a job out. Whether another one is the first now. Raises KeyError for a job that is not here."""
        jobs, at = self._jobs, bisect_left(self._jobs, order, self._at)
        if at == len(jobs) or jobs[at] != order:
            raise KeyError(order[-1])
        if at == self._at:
            self.pop()
            return True
        del jobs[at]
        return False

    def pop(self, many: int = 1) -> None:
        """Take the first one out, or so many of them."""
        jobs = self._jobs
        self._at += many
        at = self._at
        if at >= _GAP_LEAST and 2 * at >= len(jobs):
            del jobs[:at]
            self._at = at = 0
        self.first = jobs[at] if at < len(jobs) else None

    def front(self, most: int) -> list[str]:
        """The first jobs, at most so many."""
        return [order[-1] for order in islice(self._jobs, self._at, self._at + most)]

    def orders(self, most: int) -> list[Order]:
        """The places of the first jobs, at most so many."""
        return self._jobs[self._at : self._at + most]

    def count_before(self, order: Order, most: int) -> int:
        """How many jobs stand before this place, `most` at most."""
        return bisect_left(self._jobs, order, self._at, min(len(self._jobs), self._at + most)) - self._at


class RoomRows:
    """The rows of one line whose jobs need the same room. A walk comes by the first of the open ones. `told` is the
    reason of the room that they were told last, `together` for how many of them places are looked for at once. `stands`
    is the place at which a walk along the `line` comes by, None where it does not.
    """

    __slots__ = ("heap", "line", "need", "number", "rows", "stands", "together", "told")

    def __init__(self, line: Line, need: Need, number: int) -> None:
        self.line, self.need, self.number = line, need, number
        self.stands: Order | None = None
        self.rows: dict[Row, None] = {}
        self.heap: list[tuple[Order, int, Row]] = []
        self.told: PendingReason | None = None
        self.together = 1

    def first(self) -> Row | None:
        """The open row whose first job is the first of all."""
        heap = self.heap
        while heap:
            order, _, row = heap[0]
            if row.first is order and not row.is_shut:
                return row
            heappop(heap)
        return None

    def before(self, order: Order) -> list[Row]:
        """The open rows whose first job stands before this place, also those that a walk has passed."""
        return [row for row in self.rows if row.first is not None and not row.is_shut and row.first < order]

    def push(self, row: Row) -> None:
        """The row has another first job, or is open again."""
        if row.first is None or row.is_shut:
            return
        heappush(self.heap, (row.first, row.number, row))
        if len(self.heap) > 2 * len(self.rows) + _STALE_LEAST:
            self.heap = [
                (each.first, each.number, each) for each in self.rows if each.first is not None and not each.is_shut
            ]
            heapify(self.heap)

    def pop_first(self, row: Row, many: int) -> None:
        """So many jobs of this row, which come before those of all others, are out of it."""
        row.pop(many)
        if len(self.rows) == 1:
            self.heap = [] if row.first is None else [(row.first, row.number, row)]
        elif row.first is not None:
            heapreplace(self.heap, (row.first, row.number, row))
        else:
            heappop(self.heap)
