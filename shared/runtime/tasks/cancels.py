"""Cancellations that libraries lose: how one is heeded all the same, and how tasks are ended that may have lost theirs.

`asyncio.wait_for` of Python 3.11 forgets a cancellation that comes in the turn of the loop in which its work is done,
and redis-py sends every command by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

AGAIN_S = 30.0
"""So long a task may take to end before it is cancelled again: longer than any here needs to put things in order.

Nothing that asyncio tells parts a task that has lost its cancellation from one that does in a `finally` what has to be
done: `cancelling()` counts those that were asked for, and is 1 for both. To cancel the second one breaks off its work,
and to wait for the first one only takes time; so the bound is long.
"""

Tasks = set[asyncio.Future[Any]]


@contextmanager
def cancels_heeded() -> Iterator[None]:
    """A cancellation of this task that came meanwhile and was lost in here is raised at the end of the block.

    For calls of libraries, and in no generator: what it yields to may be another task.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def _a_while(going: Tasks) -> tuple[Tasks, Tasks]:
    return await asyncio.wait(going, timeout=AGAIN_S)


async def end_tasks(
    *tasks: asyncio.Future[Any], wait: Callable[[Tasks], Awaitable[tuple[Tasks, Tasks]]] = _a_while
) -> None:
    """Cancel these and wait for their end, however they come to it. One that goes on after a `wait`, which tells those
    that have ended and those that go on, is cancelled again.
    """
    going = set(tasks)
    while going:
        for task in going:
            task.cancel()
        ended, going = await wait(going)
        for task in ended:
            if not task.cancelled():
                task.exception()  # or asyncio reports that it was never retrieved
