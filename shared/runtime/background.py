"""A process that works beside the others, and gives way to them where the processor is short."""

from __future__ import annotations

import os
from enum import IntEnum


class Rank(IntEnum):
    """How far a process steps back, in steps of Unix's niceness: each gives it about a fifth less of a busy core."""

    VIEW = 4
    """People look at it: behind what decides, but never far."""

    WATCH = 10
    """Nobody waits for it."""


def step_back(rank: Rank) -> None:
    """From now on this process gives way. Where the system knows no such thing, nothing happens.

    To be called before the imports: while a whole cell starts on few cores, they are a good part of the work.
    """
    if hasattr(os, "nice"):
        os.nice(rank)
