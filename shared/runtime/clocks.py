"""Two clocks: cell time, by which policies wait and limit, and wall time, by which processes wait for each other.

Cell time is an integer number of milliseconds. It may run faster than wall time or be stepped; all services of a cell
count from one origin.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fallow.shared.runtime.settings import LATEST_CELL_MS, ClockKind, ServiceSettings


def wall_ms() -> int:
    """Wall time: milliseconds since the Unix epoch. May jump when the machine's clock is set."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds since some moment in the past; never goes back. For time-outs and durations."""
    return time.monotonic_ns() // 1_000_000


class WallCellClock:
    """Cell time that goes on by itself: `speed` cell milliseconds for each one since `origin_ms`.

    With origin 0 and speed 1 it is Unix time. It counts from the machine's clock and not from the start of the
    process, so that processes started at different moments agree; when that clock is set back, cell time waits for it.
    """

    def __init__(self, origin_ms: int = 0, speed: float = 1.0, wall: Callable[[], int] = wall_ms) -> None:
        if speed <= 0:
            raise ValueError(f"speed = {speed}: cell time must go forward")
        self.origin_ms = origin_ms
        self.speed = speed
        self._last_ms, self._wall_ms = 0, wall

    def at(self, at_wall_ms: int) -> int:
        """The cell time of a moment; 0 before the origin."""
        return max(0, int((at_wall_ms - self.origin_ms) * self.speed))

    def now_ms(self) -> int:
        """Cell time now; 0 before the origin, and never past the latest time that a record can hold."""
        now_ms = int((self._wall_ms() - self.origin_ms) * self.speed)
        self._last_ms = max(self._last_ms, min(now_ms, LATEST_CELL_MS))
        return self._last_ms

    def forget(self) -> None:
        """The machine's clock was wrong: what it said must not hold cell time ahead once it is set right."""
        self._last_ms = 0

    def forget_if_ahead(self, bound_wall_ms: int) -> None:
        """The machine's clock is right now. If it was wrong for a while, and a caller asked meanwhile, cell time would
        stand still until the clock is there again: what it said then is forgotten if it is further ahead than this.
        """
        if self._last_ms > self.at(self._wall_ms() + bound_wall_ms):
            self.forget()

    def wall_wait_ms(self, until_ms: int) -> int:
        """The wall time, in milliseconds and rounded up, until the cell time `until_ms`; 0 when it is past."""
        return max(0, -int(-(until_ms - self.now_ms()) // self.speed))


class SteppedCellClock:
    """Cell time that stands still until it is told to go on."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Cell time, as it was last told."""
        return self._now_ms

    def advance_to(self, now_ms: int) -> None:
        """Goes on to `now_ms`. Going back is ignored: a command may be read twice."""
        self._now_ms = max(self._now_ms, now_ms)


def clock_from(settings: ServiceSettings) -> WallCellClock | SteppedCellClock:
    """The clock that the settings ask for."""
    if settings.clock is ClockKind.STEPPED:
        return SteppedCellClock()
    return WallCellClock(settings.clock_origin_ms, settings.clock_speed)
