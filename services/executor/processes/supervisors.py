"""The supervisors that live, found by the mark in their environment. What stands in a worker's folder proves nothing:
workers are of the same user and may have written it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from fallow.services.executor.processes.supervisor import (
    END_AT_ONCE,
    below,
    children_of_each,
    kill,
    kill_with_group,
    monotonic_ms,
    processes,
    start_ticks,
    supervisors_among,
)

PATIENCE_MS = 10_000
"""So long a supervisor may take to end all of its worker: the kernel may take its time over a process."""


class Supervisors:
    """Those of one worker, or of all whose mark begins with one that ends in a slash. `listed` gives the ids of all
    processes of the machine.
    """

    def __init__(self, mark: str, patience_ms: int = PATIENCE_MS, listed: Callable[[], list[int]] = processes) -> None:
        self._mark, self._patience_ms, self._listed = mark, patience_ms, listed
        self._known: list[tuple[int, int]] = []
        self._asked_ms: int | None = None

    def live(self, found: Callable[[], list[tuple[int, int]]] | None = None) -> list[int]:
        """Their process ids. Only where none lives that was known before, they are taken from `found` (process id and
        ticks at its begin), or the machine is searched.
        """
        live = [(pid, ticks) for pid, ticks in self._known if start_ticks(pid) == ticks]
        if not live:
            live = _with_ticks(supervisors_among(self._listed(), self._mark)) if found is None else found()
        self._known = [(pid, ticks) for pid, ticks in live if start_ticks(pid) == ticks]
        return [pid for pid, _ in self._known]

    def end(self) -> bool:
        """Have them end their workers at once, with whatever hides from everybody else. Whether none is left, and asked
        for again until then. A process that does not end in time is no supervisor, or is kept from its work: it is
        halted, and killed once nothing is below it any more.

        A worker may make many that pose as one: the machine is searched twice at most, however many there are.
        """
        live, now_ms = supervisors_among(self._listed(), self._mark), monotonic_ms()
        self._asked_ms = now_ms if self._asked_ms is None else self._asked_ms
        if now_ms - self._asked_ms > self._patience_ms:
            self._kill_from_below(live)
        else:
            for pid in live:
                tell(pid, END_AT_ONCE)
        return not live

    def _kill_from_below(self, live: list[int]) -> None:
        """None that is halted begins another process: what is below is looked for after that."""
        for pid in live:
            _send(pid, signal.SIGSTOP)
        if not live:
            return
        children_of = children_of_each(self._listed())
        for pid in live:
            left = below(pid, children_of)
            for each in left:
                kill_with_group(each)
            if not left:
                kill(pid)


def tell(supervisor: int, word: signal.Signals) -> None:
    """Send a signal to a supervisor, which its worker may have halted."""
    _send(supervisor, word)
    _send(supervisor, signal.SIGCONT)


def _send(pid: int, word: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended just now
        os.kill(pid, word)


def _with_ticks(pids: list[int]) -> list[tuple[int, int]]:
    return [(pid, ticks) for pid in pids if (ticks := start_ticks(pid)) is not None]
