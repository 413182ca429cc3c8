"""Tasks that live and die together: the end of one, however it comes about, is never overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

Work = dict[str, Coroutine[Any, Any, None]]


class EndedByItself(Exception):
    """A task that should have gone on ended without an error: what it did is no longer done."""


async def together(stopping: asyncio.Event, *, until_stopped: Work, cut_off: Work | None = None) -> None:
    """Run all of this until told to stop. Then wait for `until_stopped`, which look at `stopping` themselves, and
    cancel `cut_off`.

    The first error of any ends all and is raised; so is an end without an error, even by a stray cancellation, which
    asyncio's own groups pass over in silence.
    """
    ending = [asyncio.create_task(work, name=name) for name, work in until_stopped.items()]
    endless = [asyncio.create_task(work, name=name) for name, work in (cut_off or {}).items()]
    stop = asyncio.create_task(stopping.wait(), name="stop")
    try:
        await asyncio.wait([stop, *ending, *endless], return_when=asyncio.FIRST_COMPLETED)
        if not stop.done():
            _raise_end([*ending, *endless])
        if ending:
            await asyncio.wait(ending)
        for task in ending:
            task.result()
    finally:
        stop.cancel()
        for task in (*ending, *endless):
            task.cancel()
        # Errors were raised above; here each task only comes to its end.
        await asyncio.gather(stop, *ending, *endless, return_exceptions=True)


def _raise_end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            if not task.cancelled():
                task.result()
            raise EndedByItself(f"{task.get_name()} ended by itself")
