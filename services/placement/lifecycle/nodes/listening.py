"""How far topic `nodes` is read, in time: a report that lies unread in the log must not count as silence.

The shell asks now and then where the topic ends. Once all before that end is taken in, everything that nodes had said
when the shell asked is known. Times are the writer's own wall time since any origin.

A record is first read by the shell, then handed over, and at last taken in by a decision. What is no record (the end of
a transaction) is only read: it counts as taken in once every record before it is.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

ENDS_MAX = 512
"""So many ends are remembered; of more, every other one is forgotten, and a long lag is told less exactly."""


class _End(NamedTuple):
    """The topic ended here, or before, at `asked_ms`. Until then the writer had not listened for `missed_ms` in all."""

    offset: int
    asked_ms: int
    missed_ms: int


class Listening:
    """As of when nodes were heard. `as_of_ms` None: nothing is known since this writer began at `begun_ms`.

    `missed_ms`: for how long until then no node could be heard, because the writer or the log was away.
    """

    def __init__(self, begun_ms: int = 0) -> None:
        self.begun_ms = begun_ms
        self.as_of_ms: int | None = None
        self.missed_ms = 0
        self._newest = _End(0, begun_ms, 0)
        self._ends: deque[_End] = deque()
        self._read = self._handed_over = 0
        self._reached_ms = begun_ms

    def reads_anew(self) -> None:
        """The topic is read on from where the log says that it was taken in."""
        self._read = self._handed_over = 0

    def has_read(self, next_offset: int) -> None:
        """The shell has handed over every record before this offset."""
        self._read = next_offset

    def was_handed(self, next_offset: int) -> None:
        """The record before this offset was handed over, and every earlier one."""
        self._handed_over = next_offset

    def asked(self, offset: int, asked_ms: int, pause_ms: int) -> None:
        """The topic ended here when the shell asked. After a pause longer than `pause_ms` the time counts as missed."""
        since_ms, missed_ms = asked_ms - self._newest.asked_ms, self._newest.missed_ms
        if since_ms > pause_ms:
            missed_ms += since_ms
        self._newest = _End(offset, asked_ms, missed_ms)
        self._ends.append(self._newest)
        if len(self._ends) > ENDS_MAX:
            self._ends = deque([self._ends[0], *list(self._ends)[2::2]])

    def took_in(self, next_offset: int) -> int:
        """Every record before this offset is taken in. How much of the time that is known now was missed."""
        if next_offset >= self._handed_over:
            next_offset = max(next_offset, self._read)
        reached, before_ms = None, self.missed_ms
        while self._ends and self._ends[0].offset <= next_offset:
            reached = self._ends.popleft()
        if reached is not None:
            self.as_of_ms, self.missed_ms = reached.asked_ms, reached.missed_ms
            self._reached_ms = self._newest.asked_ms
        return self.missed_ms - before_ms

    def stuck_ms(self) -> int:
        """For how long none of the ends was reached that the topic had when the shell asked: nothing of it is read. One
        that is read late all the time is not stuck, and neither is one whose end cannot be asked for.
        """
        return self._newest.asked_ms - self._reached_ms if self._ends else 0

    def unread_ms(self, wall_ms: int) -> int:
        """For how long the topic was not read to its end, as far as is known."""
        return wall_ms - (self.begun_ms if self.as_of_ms is None else self.as_of_ms)
