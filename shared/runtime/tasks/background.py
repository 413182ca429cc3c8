"""A process that works beside the others, and gives way to them where the processor is short."""

from __future__ import annotations

import contextlib
import os
from enum import IntEnum
from pathlib import Path

SESSION_RANK = Path("/proc/self/autogroup")
"""Linux may weigh sessions against each other instead of processes; then the rank of the whole session counts."""


class Rank(IntEnum):
    """How far a process steps back, in steps of Unix's niceness: each gives it about a fifth less of a busy core."""

    VIEW = 3
    """People look at it: behind what decides, but never far."""

    WATCH = 7
    """No task waits for it."""


def step_back(rank: Rank) -> None:
    """From now on this process gives way. Where the system knows no such thing, nothing happens.

    To be called before the imports: while a whole cell starts on few cores, they are a good part of the work.
    """
    if hasattr(os, "nice"):
        os.nice(rank)
    is_alone_in_its_session = hasattr(os, "getsid") and os.getsid(0) == os.getpid()
    if is_alone_in_its_session and SESSION_RANK.exists():
        with contextlib.suppress(OSError):  # a system may forbid it: then the process is as quick as the others
            SESSION_RANK.write_text(str(int(rank)), encoding="ascii")
