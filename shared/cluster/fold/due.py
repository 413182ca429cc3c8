"""Entries by their due time, of which many become pointless long before it: a job with a limit of seven days ends in an
hour. They are let go of as soon as they may outnumber the others, so that memory follows what lives and not what has
come and gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound="tuple[Any, ...]")

ROOM_LEAST = 64
"""So few entries are not looked through."""


@dataclass(slots=True)
class DueHeap(Generic[T]):
    """A heap of entries that begin with their due time, in a total order: which of them are held only shows in memory,
    never in what is due next of those that live.
    """

    entries: list[T] = field(default_factory=list)
    room: int = ROOM_LEAST

    def __len__(self) -> int:
        """How many entries are held, pointless ones included."""
        return len(self.entries)

    def push(self, entry: T, lives: Callable[[T], bool]) -> None:
        """Put an entry in. `lives` tells whether one still has a point. It is asked about all entries once in a while:
        so often that at most half of them, and ROOM_LEAST, are pointless, and so seldom that each push costs a bounded
        number of questions.
        """
        heappush(self.entries, entry)
        if len(self.entries) > self.room:
            self.entries = [entry for entry in dict.fromkeys(self.entries) if lives(entry)]
            heapify(self.entries)
            self.room = ROOM_LEAST + 2 * len(self.entries)

    def pop(self) -> T:
        """Take the first one out."""
        return heappop(self.entries)

    def put_back(self, entry: T) -> None:
        """Put in again what was taken out."""
        heappush(self.entries, entry)

    @property
    def first(self) -> T | None:
        """The first one."""
        return self.entries[0] if self.entries else None

    def is_due(self, now_ms: int) -> bool:
        """Whether the first one is due."""
        return bool(self.entries) and self.entries[0][0] <= now_ms
