"""Answers in turns: however many ask at a time, each kind of answers takes at most a quarter of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

REST = 3
"""An answer is followed by so many times what it took, in which none of its kind is made."""

HANDLED_S = 0.0003
"""What an answer costs beside its making: to read the request, and to write the answer."""

BANKED_S = 0.02
"""Turns that a busy loop came too late for are made up for, up to so much: or a few milliseconds of its work at a time
would keep a probe waiting behind all others.
"""


class Turns:
    """One kind of answers, one after the other in the order of the requests."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._next_s = 0.0

    async def take(self, make: Callable[[], T], is_gone: Callable[[], bool]) -> T | None:
        """What `make` makes, once it is its turn; None where by then no client waits for it any more."""
        async with self._lock:
            rest_s = self._next_s - perf_counter()
            if rest_s > 0 and not is_gone():
                await asyncio.sleep(rest_s)
            if is_gone():
                return None
            began_s = perf_counter()
            made = make()
            ended_s = perf_counter()
            # What is made up for stays one answer in each turn of the loop.
            taken_s = ended_s - began_s + HANDLED_S
            self._next_s = max(self._next_s, ended_s - BANKED_S) + (1 + REST) * taken_s
            return made
