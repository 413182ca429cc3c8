"""Answers that are kept by what was asked, for those who ask for everything in the same order each time."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_ROUNDS = 8


class FirstKept(dict[K, V], Generic[K, V]):
    """So many answers at most. Where there are more, those that came first are kept: one who asks for all of them in
    the same order each time would miss every one if the oldest went. They go when as many others were refused several
    times over, since then many of them may never be asked for again.
    """

    __slots__ = ("_max", "_refused")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._max, self._refused = most, 0

    def keep(self, name: K, what: V) -> None:
        """Keep this answer, if there is room for it."""
        if len(self) >= self._max and name not in self:
            self._refused += 1
            if self._refused <= _ROUNDS * self._max:
                return
            self.clear()
            self._refused = 0
        self[name] = what
