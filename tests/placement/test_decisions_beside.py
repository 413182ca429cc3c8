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
        self.done: list[tuple[str, bool]] = []

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:
        found = await super().beside(work, kind, may_be_long=may_be_long)
        if isinstance(work, partial):
            self.done.append((work.func.__name__, may_be_long))
        return found


async def test_what_looks_at_the_whole_state_is_done_beside_the_loop_and_what_follows_on_it() -> None:
    host = WatchedHost()
    process = PlacementProcess(MemoryLog(cluster()), "one", host)
    await process.start()
    await eventually(lambda: ("decide", False) in host.done)
    of_the_cell = [each for each in host.done if each[0] in ("take_over", "decide")]
    assert of_the_cell[:2] == [("take_over", True), ("decide", True)]
    assert process.metric("fallow_is_writer") == 1
    await process.stop()
