"""The supervisors that live, found by the mark in their environment. What stands in a worker's folder proves nothing:
workers are of the same user and may have written it.
"""

from __future__ import annotations

import contextlib
import os
import signal

from services.executor.processes.supervisor import (
    END_AT_ONCE,
    SUPERVISES,
    descendants,
    kill,
    kill_with_group,
    marked,
    monotonic_ms,
    start_ticks,
)

PATIENCE_MS = 10_000
"""So long a supervisor may take to end all of its worker: the kernel may take its time over a process."""


class Supervisors:
    """Those of one worker, or of all whose mark begins with one that ends in a slash."""

    def __init__(self, mark: str, patience_ms: int = PATIENCE_MS) -> None:
        self._mark, self._patience_ms = mark, patience_ms
        self._known: list[tuple[int, int]] = []
        self._asked_ms: int | None = None

    def live(self) -> list[int]:
        """Their process ids. The machine is searched only where none lives that was found before."""
        live = [(pid, ticks) for pid, ticks in self._known if start_ticks(pid) == ticks]
        self._known = live or _with_ticks(marked(self._mark, SUPERVISES))
        return [pid for pid, _ in self._known]

    def end(self) -> bool:
        """Have them end their workers at once, with whatever hides from everybody else. Whether none is left, and asked
        for again until then. Who does not end in time is no supervisor, or is kept from its work: it is killed once
        nothing is below it any more.
        """
        live, now_ms = marked(self._mark, SUPERVISES), monotonic_ms()
        self._asked_ms = now_ms if self._asked_ms is None else self._asked_ms
        for pid in live:
            tell(pid, END_AT_ONCE)
            if now_ms - self._asked_ms > self._patience_ms:
                _kill_from_below(pid)
        return not live


def tell(supervisor: int, word: signal.Signals) -> None:
    """Send a signal to a supervisor, which its worker may have halted."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended just now
        os.kill(supervisor, word)
        os.kill(supervisor, signal.SIGCONT)


def _kill_from_below(pid: int) -> None:
    below = descendants(pid)
    for each in below:
        kill_with_group(each)
    if not below:
        kill(pid)


def _with_ticks(pids: list[int]) -> list[tuple[int, int]]:
    return [(pid, ticks) for pid in pids if (ticks := start_ticks(pid)) is not None]
