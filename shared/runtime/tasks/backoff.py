"""Pauses between tries at something that is away: later and later, up to a bound, and never all processes in step."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S, MAX_S = 0.05, 2.0


class BackOff:
    """The pauses of one thing that is tried again and again."""

    def __init__(
        self, first_s: float = FIRST_S, max_s: float = MAX_S, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance` draws a number from 0 to below 1."""
        self._first_s, self._max_s = first_s, max_s
        self._wait_s, self._chance = first_s, chance

    def next_s(self) -> float:
        """How long to wait before the next try: half to one and a half times the pause that is due."""
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, self._max_s)
        return wait_s * (0.5 + self._chance())

    def reset(self) -> None:
        """It worked: the next pause is the first one again."""
        self._wait_s = self._first_s
