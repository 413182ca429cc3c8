"""asyncio on virtual time for one test: hours pass in a moment, and the same seed gives the same course."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.runtime.host import Host
from fallow.simulator.engine import Engine
from fallow.simulator.history.record import EPOCH_MS
from fallow.simulator.shells.loop import VirtualLoop
from tests.placement.worlds.writers import the_file

T = TypeVar("T")


class _Life:
    """A process that nothing hits."""

    paused_until_ms = 0

    def woke(self) -> tuple[int, Callable[[], None]] | None:
        return None

    def failed(self, error: BaseException) -> None:
        raise error


class VirtualHost(Host):
    """A machine whose clocks are the engine's."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def monotonic_ms(self) -> int:
        return self.engine.now_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self.engine.now_ms

    def perf_s(self) -> float:
        return self.engine.now_ms / 1_000

    def chance(self) -> float:
        return 0.5

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        """At once."""
        return work()

    def cell_file(self, path: Path) -> CellFile:
        return the_file()


def run_virtually(course: Callable[[VirtualHost], Coroutine[Any, Any, T]]) -> T:
    """What becomes of this coroutine, which is given the machine that it runs on."""
    engine = Engine(random.Random(0))
    loop = VirtualLoop(engine, _Life())  # type: ignore[abstract] # no network, no signals
    task = loop.create_task(course(VirtualHost(engine)))
    engine.run(task.done)
    assert task.done(), "it waits for what never comes"
    loop.die()
    return task.result()
