"""One line: the jobs of a queue that wait for their turn, or those of one tenant where tenants take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappush

from fallow.services.placement.queue.lines.classes import Key
from fallow.services.placement.queue.lines.row import Need, RoomRows, Row
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason

Entry = tuple[Order, int, RoomRows]


class Line:
    """The rows of a line, by class and by the room that they need.

    `fresh` are the jobs that came since the last walk and wait without a reason; `moved` are rows whose first job is
    another one than at the last walk; `passed` are rooms of which a walk has found that there is none, and whose jobs
    are not told so yet; `for_good` are rows whose jobs were told a reason that no room changes. `heap` holds the rooms
    by which a walk comes, in order: all of them where the line `keeps_order`, since there one that does not fit may
    keep others back.
    """

    __slots__ = (
        "_numbers",
        "by_room",
        "for_good",
        "fresh",
        "heap",
        "keeps_order",
        "moved",
        "passed",
        "queue",
        "rows",
        "tenant",
    )

    def __init__(self, queue: Queue, tenant: str, numbers: Iterator[int]) -> None:
        """`numbers` are other ones for each row of the cell."""
        self.queue, self.tenant, self._numbers = queue, tenant, numbers
        self.rows: dict[Key, Row] = {}
        self.by_room: dict[Need, RoomRows] = {}
        self.fresh: dict[str, Row] = {}
        self.moved: dict[Row, None] = {}
        self.passed: dict[RoomRows, None] = {}
        self.for_good: dict[Row, PendingReason] = {}
        self.keeps_order = queue.discipline is not QueueDiscipline.BEST_EFFORT_FIFO
        self.heap: list[Entry] = []

    def row(self, key: Key, need: Need, *, is_limited: bool) -> Row:
        """The row of a class, made if there is none."""
        row = self.rows.get(key)
        if row is None:
            number = next(self._numbers)
            rows = self.by_room.get(need)
            if rows is None:
                rows = self.by_room[need] = RoomRows(self, need, number)
                need.rooms[rows] = None
            row = self.rows[key] = Row(key, number, rows, is_limited=is_limited)
            rows.rows[row] = None
        return row

    def add(self, row: Row, order: Order) -> None:
        """Put a job in its place."""
        if row.add(order):
            self.open(row)

    def open(self, row: Row) -> None:
        """The row has another first job, or is open again."""
        row.rows.push(row)
        self.stand(row.rows)

    def stand(self, rows: RoomRows) -> None:
        """A walk comes by this room at the place of its first open job, unless there is none, or no room."""
        row = rows.first() if rows.need.code is None or self.keeps_order else None
        if row is not None and row.first is not None and (rows.stands is None or row.first < rows.stands):
            rows.stands = row.first
            heappush(self.heap, (row.first, rows.number, rows))

    def pop(self, row: Row, orders: Sequence[Order]) -> None:
        """Take the first jobs out of the row that a walk has come to: those of these places."""
        row.rows.pop_first(row, len(orders))
        if self.fresh:
            for order in orders:
                self.fresh.pop(order[-1], None)
        if row.first is not None:
            self.moved[row] = None
        else:
            self._drop(row)

    def remove(self, row: Row, order: Order) -> None:
        """Take a job out."""
        if row.remove(order):
            row.rows.push(row)
        self.fresh.pop(order[-1], None)
        if row.first is not None:
            self.moved[row] = None
        else:
            self._drop(row)

    def _drop(self, row: Row) -> None:
        """No job is left in the row."""
        rows = row.rows
        del self.rows[row.key], rows.rows[row]
        self.moved.pop(row, None)
        self.for_good.pop(row, None)
        if not rows.rows:
            del rows.need.rooms[rows]
            self.passed.pop(rows, None)
            del self.by_room[rows.need]
