"""Cancellations that some task swallows: they are heeded, or given again."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fallow.local.up import UPKEEP_END_S
from fallow.shared.log.kafka.closing import STOP_BOUND_S
from fallow.shared.runtime.stack import kafka_jars, services
from fallow.shared.runtime.tasks import cancels
from fallow.shared.runtime.tasks.cancels import Tasks, cancels_heeded, end_tasks


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


class Waits:
    """A wait of so many turns of the loop, and no time."""

    def __init__(self, turns: int) -> None:
        self.turns, self.count = turns, 0

    async def __call__(self, going: Tasks) -> tuple[Tasks, Tasks]:
        self.count += 1
        for _ in range(self.turns):
            await asyncio.sleep(0)
        ended = {task for task in going if task.done()}
        return ended, going - ended


async def test_what_goes_on_is_cancelled_again() -> None:
    async def stubborn() -> None:
        await swallow()
        await swallow()
        await asyncio.sleep(60)

    async def fails() -> None:
        raise OSError

    tasks, waits = [asyncio.create_task(stubborn()), asyncio.create_task(fails())], Waits(5)
    await asyncio.sleep(0)
    await end_tasks(*tasks, wait=waits)
    assert (all(task.done() for task in tasks), waits.count) == (True, 3)


@pytest.mark.parametrize("turns", [1, 50])
async def test_what_puts_things_in_order_is_let_come_to_its_end(turns: int) -> None:
    done = []

    async def in_order() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(turns):
                await asyncio.sleep(0)
            done.append("in order")

    task, waits = asyncio.create_task(in_order()), Waits(turns + 5)
    await asyncio.sleep(0)
    await end_tasks(task, wait=waits)
    assert (done, waits.count) == (["in order"], 1)


@pytest.mark.parametrize("bound_s", [UPKEEP_END_S, STOP_BOUND_S, services.STOP_WAIT_S, kafka_jars.STOP_WAIT_S])
def test_the_usual_wait_is_longer_than_what_a_task_may_wait_for_at_its_end(bound_s: float) -> None:
    assert bound_s < cancels.AGAIN_S
