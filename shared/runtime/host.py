"""What a process has of the machine that it runs on: clocks, chance, and the cell file.

Services ask their context for these and never the modules, so that the same code runs in a simulated world.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.runtime.clocks import monotonic_ms, wall_ms
from fallow.shared.runtime.files.cell_file import load_cell_file

T = TypeVar("T")

QUICK_S, SLOW_S_MAX = 0.05, 60.0
"""Work that takes no more processor time may be done on the loop: the process keeps its places in groups of Kafka all
the same.
"""

SLOW_TIMES = 20
"""After slow work all of its kind is done in a thread for so many times as long as that computed."""


class Host:
    """The machine itself."""

    def __init__(self) -> None:
        self._slow_until_s: dict[str, float] = {}

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment in the past; never goes back. For time-outs and durations."""
        return monotonic_ms()

    def wall_ms(self) -> int:
        """Wall time: milliseconds since the Unix epoch. May jump when the machine's clock is set."""
        return wall_ms()

    def perf_s(self) -> float:
        """Seconds since some moment in the past, as fine as the machine has them. For figures."""
        return time.perf_counter()

    def computed_s(self) -> float:
        """Seconds of processor time that the calling thread has used so far."""
        return time.thread_time()

    def chance(self) -> float:
        """A number from 0 to below 1, by chance: for pauses that shall differ between processes."""
        return random.random()  # noqa: S311 - jitter, not a secret

    def cell_ended(self, cell: str, error: Exception) -> None:
        """The work on a cell has ended with this error; what follows from it is the caller's to do."""

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        """Do this work and return its result. Work that may be long runs in a thread, so that the loop goes on
        meanwhile and the process keeps its places in groups. All other work runs on the loop, since on a busy machine
        each hand-over to a thread waits for a processor; but for a while after work of its kind was slow it runs in a
        thread, too: the slower that was, the longer, up to `SLOW_S_MAX`. How slow work is, its processor time tells:
        where it waited for a processor, a thread would have waited as well.
        """
        computed_s = 0.0

        def measured() -> T:
            nonlocal computed_s
            begin_s = self.computed_s()
            try:
                return work()
            finally:
                computed_s = self.computed_s() - begin_s

        now_s = self.perf_s()
        is_on_loop = not may_be_long and now_s >= self._slow_until_s.get(kind, now_s)
        try:
            return measured() if is_on_loop else await _in_a_thread(measured)
        finally:
            if computed_s > QUICK_S:
                until_s = self.perf_s() + min(SLOW_TIMES * computed_s, SLOW_S_MAX)
                self._slow_until_s[kind] = max(until_s, self._slow_until_s.get(kind, until_s))

    def cell_file(self, path: Path) -> CellFile:
        """The cell file, checked as a whole. Raises CellFileError."""
        return load_cell_file(path)

    def cell_file_mark(self, path: Path) -> object:
        """What changes when the cell file does, to know that without reading it. None where there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)


async def _in_a_thread(work: Callable[[], T]) -> T:
    """A task that is cancelled meanwhile ends when the work is done: no other task finds what it changes half done."""
    made = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        while not made.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([made])
        raise
