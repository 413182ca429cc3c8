"""How much processor time a turn of work takes, in the measure of this machine.

A loop of additions in Python is counted in the same run: where 20,000,000 of them take a second, the bound is as it
stands, and in proportion elsewhere. What is beyond the bound is tried again, and the quickest try counts: others are at
work on the machine, and the collector of the interpreter comes by.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache
from time import process_time

ADDITIONS, PART = 20_000_000, 500_000
CALIBRATIONS, TRIES = 5, 4

NOT_COUNTED = ""
"""The word behind what is only there for the test."""

Turns = Iterator[str]
"""Work on one input: between two words the worker does something else."""


def plain_loop_s() -> float:
    """How long a loop of `PART` additions takes."""
    begin_s, total = process_time(), 0
    for number in range(PART):
        total += number
    return process_time() - begin_s


@cache
def pace() -> float:
    """How much slower than the machine by which bounds are set this one is: 2.0 takes twice as long."""
    return min(plain_loop_s() for _ in range(CALIBRATIONS)) * ADDITIONS / PART


def longest_turn(work: Callable[[bytes], Turns], value: bytes) -> tuple[float, str]:
    """The longest turn of the work on this input, in ms of the machine by which bounds are set, and the last word."""
    longest_s, word = 0.0, ""
    turns = work(value)
    while True:
        begin_s = process_time()
        found = next(turns, None)
        if found is None:
            return 1_000 * longest_s / pace(), word
        if found != NOT_COUNTED:
            longest_s, word = max(longest_s, process_time() - begin_s), found


def too_long(work: Callable[[bytes], Turns], value: bytes, within_ms: float) -> tuple[str, str | None]:
    """The last word of the work on this input; and what is wrong where each try had a turn beyond the bound."""
    took_ms, word = longest_turn(work, value)
    for _ in range(TRIES - 1):
        if took_ms <= within_ms:
            return word, None
        gc.collect()
        took_ms = min(took_ms, longest_turn(work, value)[0])
    return word, None if took_ms <= within_ms else f"Slow: {took_ms:.0f} ms, at most {within_ms:.0f} are allowed"
