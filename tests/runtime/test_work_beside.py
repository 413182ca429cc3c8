"""Work that may take long holds up nothing else of a process, and quick work is done at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shared.runtime.host import QUICK_S, Host


class TimedHost(Host):
    """The machine itself, on which work takes as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def perf_s(self) -> float:
        return self.now_s

    async def threads(self, took_s: float, kind: str = "decisions") -> bool:
        """Whether work of this kind, which takes so long, is done in another thread."""

        def work() -> int:
            self.now_s += took_s
            return threading.get_ident()

        return await self.beside(work, kind) != threading.get_ident()


async def test_work_is_done_in_another_thread_until_it_is_known_to_be_quick() -> None:
    host = TimedHost()
    assert await host.threads(QUICK_S / 2)
    assert not await host.threads(QUICK_S / 2)


async def test_work_that_took_long_is_done_in_another_thread_the_next_time() -> None:
    host = TimedHost()
    for _ in range(2):
        await host.threads(QUICK_S / 2)
    await host.threads(2 * QUICK_S)
    assert await host.threads(2 * QUICK_S)
    assert await host.threads(2 * QUICK_S)


async def test_quick_work_of_one_kind_says_nothing_of_another() -> None:
    host = TimedHost()
    for _ in range(2):
        await host.threads(QUICK_S / 2, "decisions of a")
    assert await host.threads(2 * QUICK_S, "decisions of b")


@pytest.mark.parametrize("is_known", [False, True])
async def test_work_that_fails_raises_its_error(is_known: bool) -> None:
    host = TimedHost()
    if is_known:
        await host.threads(0, "decisions")

    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await host.beside(work, "decisions")


async def test_the_loop_goes_on_beside_slow_work() -> None:
    loop, turned = asyncio.get_running_loop(), threading.Event()

    def work() -> bool:
        loop.call_soon_threadsafe(turned.set)
        return turned.wait(10)

    assert await Host().beside(work, "work")


async def test_who_is_cancelled_goes_when_the_work_is_done() -> None:
    begun, may_end, told = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        told.append("done")

    task = asyncio.create_task(Host().beside(work, "work"))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["done"]
