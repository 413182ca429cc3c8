"""When to start again what has died: soon, and later and later while it keeps dying."""

from __future__ import annotations

from dataclasses import dataclass, field
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals

PAUSE_FIRST_MS, PAUSE_MAX_MS = 500, 30_000
CALM_MS = 60_000
"""What has run for so long has recovered: its next death is a first one again."""


SIGNAL_BASE = 128
"""A shell, a container and Java end with this and the number of the signal that ended them."""

WORDLESS = {-SIGKILL, -SIGTERM, -SIGINT, -SIGHUP}
"""Ends by a signal from outside: what the process wrote before does not explain them."""


@dataclass(slots=True)
class Deaths:
    """The deaths of one process in a row, and when it was last started (milliseconds of a monotonic clock)."""

    started_ms: int
    in_a_row: int = 0

    def died(self, now_ms: int) -> int:
        """It died at `now_ms`. How long to wait before it is started again, in ms: doubles from death to death."""
        if now_ms - self.started_ms >= CALM_MS:
            self.in_a_row = 0
        self.in_a_row += 1
        return int(min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** min(self.in_a_row - 1, 20)))

    def started(self, now_ms: int) -> None:
        """It was started again."""
        self.started_ms = now_ms


@dataclass(slots=True)
class Restarts:
    """The deaths of all processes of a run, by name."""

    deaths: dict[str, Deaths] = field(default_factory=dict)

    def of(self, name: str, now_ms: int) -> Deaths:
        """The deaths of one process, which counts as started now if it is new here."""
        return self.deaths.setdefault(name, Deaths(now_ms))


def how_it_ended(exit_code: int) -> str:
    """The end of a process in words: its exit code, or the signal that killed it."""
    known = {int(number): number.name for number in Signals}
    if exit_code >= 0:
        by = known.get(exit_code - SIGNAL_BASE)
        return f"ended with code {exit_code}" + (f", as {by} makes it" if by else "")
    return f"was killed by {known.get(-exit_code, f'signal {-exit_code}')}"
