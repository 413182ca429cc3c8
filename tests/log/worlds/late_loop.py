"""Runs a coroutine on virtual time, so that a broker that answers a second late costs a test none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fallow.simulator.engine import Engine
from fallow.simulator.shells.loop import VirtualLoop


class Life:
    """A process that is neither struck nor stopped."""

    paused_until_ms = 0

    def woke(self) -> tuple[int, Callable[[], None]] | None:
        return None

    def failed(self, error: BaseException) -> None:
        raise error


def on_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it to its end, and fail where it leaves a task behind."""
    engine = Engine(random.Random(0))
    loop = VirtualLoop(engine, Life())  # type: ignore[abstract] # as the world makes it
    task = loop.create_task(main())
    engine.run(task.done)
    assert task.done(), "it waits for ever"
    task.result()
    with loop.as_running():
        assert [each for each in loop._tasks if not each.done()] == [], "tasks are left behind"


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test on virtual time."""

    @wraps(test)
    def run(**given: object) -> None:
        on_virtual_time(lambda: test(**given))

    return run


def now_s() -> float:
    return asyncio.get_running_loop().time()
