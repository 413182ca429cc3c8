"""Cancellations that somebody swallows: they are heeded, or given again."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fallow.shared.runtime import cancels
from fallow.shared.runtime.cancels import cancels_heeded, end_tasks


async def swallow() -> None:
    """As a library does that mistakes a cancellation for the end of its own wait."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)


async def heeding(*, fails: bool) -> None:
    with cancels_heeded():
        await swallow()
        if fails:
            raise OSError
    await asyncio.sleep(60)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_that_was_lost_below_ends_the_task(*, fails: bool) -> None:
    task = asyncio.create_task(heeding(fails=fails))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled()


async def test_a_time_that_is_over_is_heeded_as_such() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await heeding(fails=False)


async def test_what_was_heeded_before_is_not_raised_again() -> None:
    async def goes_on() -> str:
        await swallow()
        with cancels_heeded():
            await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(goes_on())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "went on"


async def test_what_goes_on_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancels, "AGAIN_S", 0.01)

    async def stubborn() -> None:
        await swallow()
        await swallow()
        await asyncio.sleep(60)

    async def fails() -> None:
        raise OSError

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end_tasks(*tasks)
    assert all(task.done() for task in tasks)
