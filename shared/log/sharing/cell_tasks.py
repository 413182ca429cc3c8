"""Runs one task for each cell that this process owns, by its membership of a group on the topic `cells`.

A task learns of a change through its tenure: on a loss it stops acting at once, but lives on for a while, since most
losses are rebalances that give the cell back a moment later, and to fold a large cell anew takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Member

LINGER_S = 30.0


@dataclass(slots=True)
class Tenure:
    """Whether a cell should be this process's, now. A hint and no fence: two may believe so at a time."""

    cell: str
    holds: bool = True
    on_change: Callable[[], None] = lambda: None
    """Called when `holds` has changed: set by the work itself, which may wait for something else by then."""

    def change(self, *, holds: bool) -> None:
        """The cell comes back, or goes."""
        self.holds = holds
        self.on_change()


Work = Callable[[Tenure], Coroutine[Any, Any, None]]


class CellTasks:
    """The tasks of one process. An error in one of them ends all, and is raised by `run`."""

    def __init__(self, member: Member, layout: Layout, work: Work, *, linger_s: float = LINGER_S) -> None:
        self._member, self._layout, self._work, self._linger_s = member, layout, work, linger_s
        self._tenures: dict[str, Tenure] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._losses: dict[str, asyncio.TimerHandle] = {}

    @property
    def owned(self) -> list[str]:
        """The cells that this process should act on, in their order."""
        return sorted(cell for cell, tenure in self._tenures.items() if tenure.holds)

    async def run(self, stopping: asyncio.Event) -> None:
        """Follow the membership until told to stop or a task fails, then end all tasks. The member is the caller's."""
        stop = asyncio.create_task(stopping.wait(), name="stop of cell tasks")
        change = asyncio.create_task(self._member.changed(), name="change of owned cells")
        try:
            while True:
                await asyncio.wait([stop, change, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
                self._raise_failures()
                if stop.done():
                    return
                if change.done():
                    self._adopt(change.result())
                    change = asyncio.create_task(self._member.changed(), name="change of owned cells")
        finally:
            await self._end([stop, change])

    def _adopt(self, partitions: frozenset[int]) -> None:
        cells = {cell for partition in sorted(partitions) if (cell := self._layout.cell_at(partition)) is not None}
        for cell in sorted(cells | self._tenures.keys()):
            if cell in cells:
                self._gain(cell)
            elif self._tenures[cell].holds:
                self._lose(cell)

    def _gain(self, cell: str) -> None:
        loss = self._losses.pop(cell, None)
        if loss is not None:
            loss.cancel()
        if cell in self._tasks:
            self._tenures[cell].change(holds=True)
            return
        self._tenures[cell] = Tenure(cell)
        self._tasks[cell] = asyncio.create_task(self._work(self._tenures[cell]), name=f"work on {cell}")

    def _lose(self, cell: str) -> None:
        self._tenures[cell].change(holds=False)
        self._losses[cell] = asyncio.get_running_loop().call_later(self._linger_s, self._tasks[cell].cancel)

    def _raise_failures(self) -> None:
        for cell, task in list(self._tasks.items()):
            if not task.done():
                continue
            tenure = self._tenures.pop(cell)
            del self._tasks[cell]
            self._losses.pop(cell, None)
            if not task.cancelled():
                task.result()
            elif tenure.holds:
                self._gain(cell)  # the cell came back while its task was being let go

    async def _end(self, more: list[asyncio.Task[bool] | asyncio.Task[frozenset[int]]]) -> None:
        for loss in self._losses.values():
            loss.cancel()
        tasks = [*more, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        # Failures were raised already; here every task only comes to its end.
        await asyncio.gather(*tasks, return_exceptions=True)
