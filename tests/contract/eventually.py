"""Waiting for what must become true, with an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

STEP_S = 0.01


async def eventually(check: Callable[[], bool | Awaitable[bool]], within_s: float = 15) -> None:
    """Ask again and again until it is so. Raises AssertionError when it is not so in time."""
    for _ in range(int(within_s / STEP_S)):
        answer = check()
        if answer if isinstance(answer, bool) else await answer:
            return
        await asyncio.sleep(STEP_S)
    raise AssertionError(f"not so within {within_s} s")
