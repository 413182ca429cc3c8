"""When to try Redis again, and when the view counts as too old to serve: decided without a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass

PAUSE_WALL_MS_FIRST = 50
PAUSE_WALL_MS_MAX = 5_000

STEP_ROWS = 5_000
"""Rows that one step aims at: some 20 ms of Redis's time, in which it serves no other client."""


@dataclass(slots=True)
class Patience:
    """Pauses that double from attempt to attempt, so that a Redis that comes back is not trampled."""

    failures: int = 0
    not_before_ms: int = 0

    def failed(self, now_ms: int, chance: float) -> int:
        """An attempt failed at `now_ms`; `chance` in 0..1 spreads projectors that fail together. The pause, in ms."""
        pause_ms = min(PAUSE_WALL_MS_MAX, PAUSE_WALL_MS_FIRST * 2 ** min(self.failures, 20))
        pause_ms = int(pause_ms * (0.5 + chance))
        self.failures += 1
        self.not_before_ms = now_ms + pause_ms
        return pause_ms

    def succeeded(self) -> None:
        """The next attempt may come at once."""
        self.failures = self.not_before_ms = 0


@dataclass(slots=True)
class Lag:
    """How far a view is behind its log: in records, and since when (monotonic milliseconds; None: it is not)."""

    records_max: int
    wall_ms_max: int
    records: int = 0
    since_ms: int | None = None

    def is_at(self, records: int, now_ms: int) -> None:
        """The view is so many records behind now."""
        self.records = records
        if not records:
            self.since_ms = None
        elif self.since_ms is None:
            self.since_ms = now_ms

    def wall_ms(self, now_ms: int) -> int:
        """For how long it has been behind."""
        return 0 if self.since_ms is None else now_ms - self.since_ms

    def complaint(self, now_ms: int) -> str | None:
        """Why the view is too old to serve, or None."""
        behind_ms = self.wall_ms(now_ms)
        if self.records > self.records_max or behind_ms > self.wall_ms_max:
            return f"the view is {self.records} records behind, for {behind_ms} ms"
        return None


@dataclass(slots=True)
class Pace:
    """How often the view moves, and how far in one step. What comes after a silence is shown at once; while more comes
    it is gathered, since one large step costs less than many small ones, and a job that changes twice has one row.
    """

    wall_ms: int
    records_max: int
    records: int = 0
    not_before_ms: int = 0

    def __post_init__(self) -> None:
        """As much as may be, until it is known how many rows that gives."""
        self.records = self.records_max

    def stepped(self, records: int, rows: int, asked_ms: int) -> None:
        """So many records came when the log was asked at `asked_ms`, and became so many rows."""
        is_all = records < self.records
        self.not_before_ms = asked_ms + self.wall_ms if is_all else asked_ms
        fit = STEP_ROWS * records // rows if rows else self.records_max
        self.records = max(1, min(self.records_max, fit, 2 * self.records))

    def pause_ms(self, now_ms: int) -> int:
        """How long to gather before the log is asked again; not at all while it holds more than one step takes."""
        return max(0, self.not_before_ms - now_ms)
