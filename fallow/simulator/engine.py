"""Virtual time: a heap of what happens when. Time jumps from one action to the next and never waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol, TypeVar

T = TypeVar("T")

Action = Callable[[], None]


class Chance(Protocol):
    """What the engine needs of a seeded random.Random: it makes none of its own."""

    def random(self) -> float:
        """A number from 0 to below 1."""

    def randrange(self, start: int, stop: int) -> int:
        """A whole number from `start` to below `stop`."""

    def choice(self, seq: Sequence[T]) -> T:
        """One of these."""


class Engine:
    """The clock and the order of all things. What is due at one time happens in the order in which it was planned."""

    __slots__ = ("_number", "_queue", "_until", "chance", "now_ms", "steps")

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.now_ms = 0
        self.steps = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._until: Callable[[], bool] = lambda: False
        self._number = 0

    def at(self, at_ms: int, action: Action) -> None:
        """Do this at that time, or now if the time is past."""
        self._number += 1
        heappush(self._queue, (max(self.now_ms, at_ms), self._number, action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Do this after a delay."""
        self._number += 1
        heappush(self._queue, (self.now_ms + delay_ms, self._number, action))

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included, drawn by chance."""
        return low + int(self.chance.random() * (high - low + 1))

    @property
    def is_free(self) -> bool:
        """Whether nothing else is due now, so that what would be planned for now may be done at once."""
        queue = self._queue
        return not (queue and queue[0][0] <= self.now_ms) and not self._until()

    def run(self, until: Callable[[], bool]) -> None:
        """Let things happen until `until` says so, or nothing is left to happen."""
        queue, self._until = self._queue, until
        while queue:
            self.now_ms, _, action = heappop(queue)
            action()
            if until():
                return

    def run_to(self, until_ms: int) -> None:
        """Let happen what is due up to then, and be there."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            self.now_ms, _, action = heappop(queue)
            action()
        self.now_ms = until_ms
