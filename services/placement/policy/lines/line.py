"""One line: the jobs of a queue that wait for their turn, or those of one tenant where tenants take turns."""

from __future__ import annotations

from collections.abc import Iterator

from services.placement.policy.lines.classes import Key
from services.placement.policy.lines.row import Need, RoomRows, Row
from shared.cluster.config import Queue
from shared.cluster.queue_order import Order


class Line:
    """The rows of a line, by class and by the room that they need. `fresh` are the jobs that came since the last walk
    and wait without a reason; `moved` are rows whose first job is another one than at the last walk.
    """

    __slots__ = ("_numbers", "by_room", "fresh", "moved", "queue", "rows", "tenant")

    def __init__(self, queue: Queue, tenant: str, numbers: Iterator[int]) -> None:
        """`numbers` are other ones for each row of the cell."""
        self.queue, self.tenant, self._numbers = queue, tenant, numbers
        self.rows: dict[Key, Row] = {}
        self.by_room: dict[Need, RoomRows] = {}
        self.fresh: dict[str, Row] = {}
        self.moved: dict[Row, None] = {}

    def row(self, key: Key, need: Need, *, is_limited: bool) -> Row:
        """The row of a class, made if there is none."""
        row = self.rows.get(key)
        if row is None:
            number = next(self._numbers)
            rows = self.by_room.get(need)
            if rows is None:
                rows = self.by_room[need] = RoomRows(need, number)
            row = self.rows[key] = Row(key, number, rows, is_limited=is_limited)
            rows.rows[row] = None
            need.rows += 1
        return row

    def add(self, row: Row, order: Order) -> None:
        """Put a job in its place."""
        if row.add(order):
            row.rows.push(row)

    def pop(self, row: Row, order: Order) -> None:
        """Take the first job out of the row that a walk has come to."""
        row.rows.pop_first(row)
        if self.fresh:
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
        """Nobody is left in the row."""
        rows = row.rows
        del self.rows[row.key], rows.rows[row]
        self.moved.pop(row, None)
        rows.need.rows -= 1
        if not rows.rows:
            del self.by_room[rows.need]
