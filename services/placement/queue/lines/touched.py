"""Which classes of the lines have changed, for those who keep something that follows from who waits."""

from __future__ import annotations

from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.row import Row


class Touched:
    """The rows, each with its line, that may have come, gone, or got another first job since they were taken out."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[Row, Line] = {}

    def add(self, row: Row, line: Line) -> None:
        """Something of this row has changed."""
        self._rows[row] = line

    def take(self) -> dict[Row, Line]:
        """The rows; from here on it counts anew."""
        found, self._rows = self._rows, {}
        return found
