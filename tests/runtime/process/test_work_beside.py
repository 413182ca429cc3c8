"""Work that may take long holds up nothing else of a process, and quick work is done at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fallow.shared.runtime.host import QUICK_S, SLOW_S_MAX, SLOW_TIMES, Host


class TimedHost(Host):
    """The machine itself, on which work takes as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self.used_s = 0.0

    def perf_s(self) -> float:
        return self.now_s

    def computed_s(self) -> float:
        return self.used_s

    async def threads(
        self, took_s: float, kind: str = "decisions", *, may_be_long: bool = False, waited_s: float = 0.0
    ) -> bool:
        """Whether work of this kind, which computes so long and waits so long for a processor, is done in another
        thread.
        """

        def work() -> int:
            self.now_s, self.used_s = self.now_s + took_s + waited_s, self.used_s + took_s
            return threading.get_ident()

        return await self.beside(work, kind, may_be_long=may_be_long) != threading.get_ident()


async def test_work_that_is_quick_is_done_on_the_loop() -> None:
    host = TimedHost()
    assert [await host.threads(QUICK_S / 2) for _ in range(3)] == [False] * 3


async def test_work_that_may_be_long_is_done_in_another_thread_however_quick_the_last_was() -> None:
    host = TimedHost()
    await host.threads(QUICK_S / 2)
    assert await host.threads(2 * QUICK_S, may_be_long=True)


async def test_after_slow_work_all_of_its_kind_is_done_in_another_thread_for_a_while() -> None:
    host = TimedHost()
    assert not await host.threads(2 * QUICK_S)
    assert [await host.threads(QUICK_S / 2) for _ in range(3)] == [True] * 3
    host.now_s += SLOW_TIMES * 2 * QUICK_S
    assert not await host.threads(QUICK_S / 2)


async def test_after_very_slow_work_the_while_is_longer_and_has_an_end() -> None:
    host = TimedHost()
    await host.threads(SLOW_S_MAX)
    await host.threads(2 * QUICK_S)
    host.now_s += SLOW_S_MAX - 3 * QUICK_S
    assert await host.threads(QUICK_S / 2)
    host.now_s += QUICK_S
    assert not await host.threads(QUICK_S / 2)


async def test_work_that_only_waits_for_a_processor_is_not_slow() -> None:
    host = TimedHost()
    await host.threads(QUICK_S / 2, waited_s=10 * QUICK_S)
    assert not await host.threads(QUICK_S / 2)


async def test_the_machine_counts_the_processor_time_of_the_thread_that_works() -> None:
    host = Host()

    def work() -> int:
        while host.computed_s() - begin_s < 2 * QUICK_S:
            pass
        return threading.get_ident()

    begin_s = host.computed_s()
    assert await host.beside(work, "decisions", may_be_long=False) == threading.get_ident()
    assert await host.beside(threading.get_ident, "decisions", may_be_long=False) != threading.get_ident()


async def test_slow_work_of_one_kind_says_nothing_of_another() -> None:
    host = TimedHost()
    await host.threads(2 * QUICK_S, "decisions of a")
    assert not await host.threads(QUICK_S / 2, "decisions of b")


@pytest.mark.parametrize("may_be_long", [False, True])
async def test_work_that_fails_raises_its_error(may_be_long: bool) -> None:
    host = TimedHost()

    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await host.beside(work, "decisions", may_be_long=may_be_long)


async def test_the_loop_goes_on_beside_slow_work() -> None:
    loop, turned = asyncio.get_running_loop(), threading.Event()

    def work() -> bool:
        loop.call_soon_threadsafe(turned.set)
        return turned.wait(10)

    assert await Host().beside(work, "work", may_be_long=True)


async def test_who_is_cancelled_goes_when_the_work_is_done() -> None:
    begun, may_end, told = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        told.append("done")

    task = asyncio.create_task(Host().beside(work, "work", may_be_long=True))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["done"]
