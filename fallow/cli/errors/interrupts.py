"""A command that is told to end (SIGTERM), or whose terminal is closed (SIGHUP), ends as by Ctrl-C: what it has begun
is taken back, so no unfinished file stays and no process that it started.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

ENDS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a process without a word, where it does not ask for it."""

CODE_BEGINS = 128
"""A shell tells of a process that a signal has ended by this and the signal's number."""

INTERRUPTED = CODE_BEGINS + signal.SIGINT
"""typer's code for Ctrl-C, too."""


_AT_WORK: list[asyncio.Task[Any]] = []
"""What the event loop of this process runs as the whole of a command."""

_CAME: list[signal.Signals] = []
"""By what this command was told to end, the last one last."""


def end_if_interrupted() -> None:
    """Raise KeyboardInterrupt where the command was told to end, though what it was about has lost that."""
    if _CAME:
        raise KeyboardInterrupt


async def cancelled_by_signals(work: Awaitable[T]) -> T:
    """Run this as the whole of a command. What ends it cancels it also where the process is to ignore Ctrl-C: asyncio
    does so only where that has its usual meaning, and elsewhere an interrupt would hit whatever the loop is about.
    Raises KeyboardInterrupt also where the work has lost its cancellation, or was done in the turn in which that came.
    """
    task = asyncio.current_task()
    assert task is not None
    _AT_WORK.append(task)
    try:
        found = await work
    except asyncio.CancelledError:
        if task in _AT_WORK:  # cancelled by asyncio itself, which tells of an interrupt in its own way
            raise
        raise KeyboardInterrupt from None
    else:
        if task not in _AT_WORK or task.cancelling():
            raise KeyboardInterrupt
        return found
    finally:
        with suppress(ValueError):  # a signal may take it away at any moment
            _AT_WORK.remove(task)


class Interrupts:
    """Turns these signals into an interrupt, and knows by which one the command ends."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def listen(self) -> None:
        """From now on. One that the process is to ignore, as `nohup` has it, stays ignored. A command that takes the
        signals itself does so instead.
        """
        for number in ENDS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._interrupt)

    def code_of(self, code: str | int | None) -> str | int | None:
        """The exit code instead of this one, which tells of an interrupt without saying which."""
        return CODE_BEGINS + _CAME[-1] if _CAME and code == INTERRUPTED else code

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if (
            os.getpid() != self._process
        ):  # a process of a pool, which has nothing to take back and is ended by its parent
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        _CAME.append(signal.Signals(number))
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what is to run in the background
            if _AT_WORK:
                task = _AT_WORK.pop()
                task.get_loop().call_soon_threadsafe(task.cancel)
                return
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)
