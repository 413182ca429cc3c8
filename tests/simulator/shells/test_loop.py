"""asyncio on virtual time: order, time, death and standstill of one process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from fallow.simulator.engine import Engine
from fallow.simulator.shells.loop import VirtualLoop


class Life:
    """A process as the loop sees it. `blows` come one at each wake-up."""

    def __init__(self) -> None:
        self.paused_until_ms = 0
        self.blows: list[tuple[int, Callable[[], None]]] = []
        self.errors: list[BaseException] = []
        self.woken = 0

    def woke(self) -> tuple[int, Callable[[], None]] | None:
        self.woken += 1
        return self.blows.pop(0) if self.blows else None

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)


class Scene:
    """One engine, and as many loops as a test wants."""

    def __init__(self) -> None:
        self.engine = Engine(random.Random(0))
        self.life = Life()
        self.loop = self.another()
        self.said: list[tuple[int, str]] = []

    def another(self) -> VirtualLoop:
        return VirtualLoop(self.engine, self.life)  # type: ignore[abstract] # as the world makes it

    def say(self, what: str) -> None:
        self.said.append((self.engine.now_ms, what))

    def run(self) -> list[tuple[int, str]]:
        self.engine.run(lambda: False)
        return self.said


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_sleep_takes_virtual_time_and_no_other(scene: Scene) -> None:
    async def sleeper() -> None:
        begun_s = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        scene.say(f"{asyncio.get_running_loop().time() - begun_s:.3f} s later")

    scene.loop.create_task(sleeper())
    assert scene.run() == [(3_600_000, "3600.000 s later")]


@pytest.mark.parametrize(("delay_s", "at_ms"), [(0.001, 1), (0.0011, 2), (0.25, 250), (0.0, 0), (-1.0, 0)])
def test_a_delay_is_rounded_up_to_a_millisecond(scene: Scene, delay_s: float, at_ms: int) -> None:
    scene.loop.call_later(delay_s, scene.say, "now")
    assert scene.run() == [(at_ms, "now")]


def test_a_timer_that_was_cancelled_does_nothing(scene: Scene) -> None:
    scene.loop.call_later(1, scene.say, "never").cancel()
    assert scene.run() == []


def test_a_time_out_cuts_a_wait_short(scene: Scene) -> None:
    async def waiter() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.Event().wait()
        scene.say("given up")

    scene.loop.create_task(waiter())
    assert scene.run() == [(2_000, "given up")]


def test_all_loops_share_one_order(scene: Scene) -> None:
    other = scene.another()
    for loop, name in ((other, "second"), (scene.loop, "first"), (other, "third")):
        loop.call_later({"first": 1, "second": 2, "third": 3}[name], scene.say, name)
    assert [name for _, name in scene.run()] == ["first", "second", "third"]


def test_tasks_are_cancelled_in_the_same_order_wherever_they_lie_in_memory() -> None:
    def order() -> list[tuple[int, str]]:
        scene = Scene()

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                scene.say(str(number))

        async def parent() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(child(number))
                await asyncio.sleep(1)
                raise ValueError("all of them end")

        scene.loop.create_task(parent())
        return scene.run()

    kept = [order() for _ in range(5)]
    assert len(kept[0]) == 20
    assert all(each == kept[0] for each in kept)


def test_nothing_of_a_dead_loop_runs_and_its_coroutines_are_closed(scene: Scene) -> None:
    ports_refuse = []

    async def worker() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                scene.say("works")
        finally:
            ports_refuse.append(True)
            await asyncio.sleep(1)
            scene.say("never")

    scene.loop.create_task(worker())
    scene.engine.at(2_500, scene.loop.die)
    assert scene.run() == [(1_000, "works"), (2_000, "works")]
    assert ports_refuse == [True]


def test_a_process_that_stands_still_does_all_of_it_when_it_wakes(scene: Scene) -> None:
    scene.loop.call_later(1, scene.say, "first")
    scene.loop.call_later(2, scene.say, "second")
    scene.life.paused_until_ms = 5_000
    assert scene.run() == [(5_000, "first"), (5_000, "second")]


def test_a_blow_falls_between_two_handles(scene: Scene) -> None:
    async def steps() -> None:
        for number in range(10):
            scene.say(str(number))
            await asyncio.sleep(0)

    scene.life.blows = [(3, scene.loop.die)]
    scene.loop.create_task(steps())
    assert [what for _, what in scene.run()] == ["0", "1", "2"]


def test_a_blow_that_was_drawn_falls_before_the_process_sleeps(scene: Scene) -> None:
    scene.life.blows = [(1_000, lambda: scene.say("struck"))]
    scene.loop.call_soon(scene.say, "short work")
    scene.loop.call_later(1, scene.say, "later")
    assert scene.run() == [(0, "short work"), (0, "struck"), (1_000, "later")]
    assert scene.life.woken == 2


def test_a_loop_that_never_waits_does_not_stop_the_clock(scene: Scene) -> None:
    async def busy() -> None:
        while scene.engine.now_ms < 3:  # noqa: ASYNC110 - as a defect would
            await asyncio.sleep(0)
        scene.say("the time has come")

    scene.loop.create_task(busy())
    assert scene.run() == [(3, "the time has come")]


def test_a_callback_that_raises_is_told_and_the_loop_goes_on(scene: Scene) -> None:
    def fails() -> None:
        raise ValueError("a defect")

    scene.loop.call_soon(fails)
    scene.loop.call_soon(scene.say, "goes on")
    assert scene.run() == [(0, "goes on")]
    assert [str(error) for error in scene.life.errors] == ["a defect"]


def test_what_the_dead_leave_makes_no_later_task_dearer(scene: Scene) -> None:
    async def waits_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with scene.loop.as_running():
        tasks = [asyncio.create_task(waits_for_ever()) for _ in range(3)]
    scene.run()
    known = asyncio.all_tasks(scene.loop)
    scene.loop.die()
    assert not known & {*tasks}, "asyncio compares each new task with all that it knows of the same number"
