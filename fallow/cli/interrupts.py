"""A command that is told to end (SIGTERM), or whose terminal is closed (SIGHUP), ends as by Ctrl-C: what it has begun
is taken back, so no unfinished file stays and no process that it started.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a process without a word, where it does not ask for it."""

CODE_BEGINS = 128
"""A shell tells of a process that a signal has ended by this and the signal's number."""

INTERRUPTED = CODE_BEGINS + signal.SIGINT
"""typer's code for Ctrl-C, too."""


class Interrupts:
    """Turns these signals into an interrupt, and knows by which one the command ends."""

    def __init__(self) -> None:
        self._number = signal.SIGINT
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
        return CODE_BEGINS + self._number if code == INTERRUPTED else code

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if (
            os.getpid() != self._process
        ):  # a process of a pool, which has nothing to take back and is ended by its parent
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        self._number = signal.Signals(number)
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what is to run in the background
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)
