"""A read that is asked again for a few seconds while the view is being built."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fallow.shared.client.port import NotYet
from fallow.shared.runtime.clocks import monotonic_ms

T = TypeVar("T")

WAIT_MS = 5_000
STEP_S = 0.1


async def patiently(ask: Callable[[], Awaitable[T]], wait_ms: int = WAIT_MS) -> T:
    """The answer. Raises NotYet if there is none after `wait_ms`, and whatever else `ask` raises at once."""
    deadline = monotonic_ms() + wait_ms
    while True:
        try:
            return await ask()
        except NotYet:
            if monotonic_ms() > deadline:
                raise
        await asyncio.sleep(STEP_S)
