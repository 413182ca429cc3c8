"""The machine of a simulated process: the world's clock, as skewed as the process has it, chance, and cell file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.runtime.host import Host
from fallow.simulator.process import Process

T = TypeVar("T")

CellFailed = Callable[[Exception], None]


class WorldHost(Host):
    """What a process asks its machine for, answered by the world. Nothing takes time but waiting."""

    def __init__(self, process: Process, failed: CellFailed) -> None:
        """`failed` is told of each error that ends the work on a cell."""
        self._process, self._engine, self._failed = process, process.world.engine, failed

    def monotonic_ms(self) -> int:
        """Never skewed."""
        return self._process.monotonic_ms

    def wall_ms(self) -> int:
        """By the process's own clock."""
        return self._process.cell_ms

    def perf_s(self) -> float:
        """In steps of a millisecond."""
        return self._engine.now_ms / 1000

    def chance(self) -> float:
        """Drawn from the world's seed."""
        return self._engine.chance.random()

    def cell_ended(self, cell: str, error: Exception) -> None:  # noqa: ARG002 - any
        """Told when the process waits next, since it may end by this."""
        asyncio.get_running_loop().call_soon(self._failed, error)

    async def beside(self, work: Callable[[], T], kind: str, *, may_be_long: bool) -> T:  # noqa: ARG002 - any
        """At once."""
        return work()

    def cell_file(self, path: Path) -> CellFile:  # noqa: ARG002 - there is one
        """The one that the operator has put there last, wherever that is."""
        return self._process.world.file

    def cell_file_mark(self, path: Path) -> object:  # noqa: ARG002 - the same
        """The file itself."""
        return self._process.world.file
