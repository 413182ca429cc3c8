"""When admission reads no further: while placement is behind with what was passed on to it.

What is more than placement can take then waits in the topics of submissions, where each tenant's own topic has its
turn, and costs nothing. Were it passed on at once, admission would take the processor from placement just when it has
too little, and every job would stand behind the whole flood.

Cells share the partitions of submissions, so a wait for one cell makes the jobs of all others wait. Admission waits
only where all of them are behind: no cell is held up by another one.
"""

from __future__ import annotations

from typing import NamedTuple

AWAY_MS = 5_000
"""A placement that has read nothing for so long, though something waits, is away and not slow. Admission does not wait
for it: one cell without a writer holds up no other, and its jobs are safe in its topic.
"""


class _Seen(NamedTuple):
    next_offset: int
    moved_ms: int
    behind_ms: int


class Backpressure:
    """How far placement has come in each of so many `cells`, as of the last look. Times are monotonic milliseconds."""

    def __init__(self, behind_ms_max: int, cells: int = 1) -> None:
        self._behind_ms_max, self._cells_all = behind_ms_max, cells
        self._cells: dict[str, _Seen] = {}

    def saw(self, cell: str, next_offset: int, behind_ms: int, now_ms: int) -> None:
        """Placement has read the cell's jobs up to this offset, and for so long something has stood behind that."""
        known = self._cells.get(cell)
        moved_ms = known.moved_ms if known is not None and known.next_offset == next_offset else now_ms
        self._cells[cell] = _Seen(next_offset, moved_ms, behind_ms)

    def slow(self, now_ms: int) -> dict[str, int]:
        """The cells that are to be waited for, and by how much each is behind: all of them, or none."""
        found = {
            cell: seen.behind_ms
            for cell, seen in self._cells.items()
            if seen.behind_ms >= self._behind_ms_max and now_ms - seen.moved_ms < AWAY_MS
        }
        return found if len(found) == self._cells_all else {}
