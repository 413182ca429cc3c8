"""A decision that takes long costs the process no place in its group: it is made beside the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from shared.log.memory import MemoryLog
from shared.runtime.host import Host
from tests.contract.eventually import eventually
from tests.placement.writers import PlacementProcess, cluster

T = TypeVar("T")


class WatchedHost(Host):
    """The machine itself, which tells what was done beside the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.beside_it: set[str] = set()

    async def beside(self, work: Callable[[], T], kind: str) -> T:
        found = await super().beside(work, kind)
        if isinstance(work, partial):
            self.beside_it.add(work.func.__name__)
        return found


async def test_the_loop_goes_on_while_a_decision_is_made() -> None:
    host = WatchedHost()
    process = PlacementProcess(MemoryLog(cluster()), "one", host)
    await process.start()
    await eventually(lambda: "decide" in host.beside_it)
    assert process.metric("fallow_is_writer") == 1
    await process.stop()
