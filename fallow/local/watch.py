"""Watches a cell by folding its log like everybody else, for progress displays and to see when the work is done."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from fallow.local.local_cell import LocalCell
from fallow.replay.workload import CELL
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, NodeStatus
from fallow.shared.log.follower import Follower
from fallow.shared.runtime.stack.services import told_late
from fallow.shared.runtime.tasks.cancels import end_tasks

POLL_WAIT_MS = 200
LOOK_AGAIN_S = 0.1
JOIN_WAIT_S = 60.0


class NodesAway(Exception):
    """Nodes that were started do not become ready in the cell; says how many are, and what stands in the way."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool, in whole GPUs, rounded down."""

    name: str
    gpus: int
    allocated: int


@dataclass(frozen=True, slots=True)
class View:
    """A cell at one moment."""

    version: int
    at_ms: int
    running: int
    queued: int
    over: int
    pools: tuple[PoolView, ...]

    @property
    def gar(self) -> float:
        """The part of all GPUs that is allocated."""
        gpus = sum(pool.gpus for pool in self.pools)
        return sum(pool.allocated for pool in self.pools) / gpus if gpus else 0.0


class Watch:
    """Follows one cell's log in a task of its own."""

    def __init__(self, stage: LocalCell) -> None:
        self._stage = stage
        self._follower = Follower(stage.log, stage.layout, CELL, snapshots=False)
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> CellState:
        """The state as far as it has been read."""
        return self._follower.state

    async def start(self) -> None:
        """Follow from now on."""
        await self._follower.start()
        self._task = asyncio.create_task(self._follow(), name="watch")

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            await end_tasks(self._task)
        await self._follower.stop()

    async def nodes_joined(self, count: int, wait_s: float = JOIN_WAIT_S) -> None:
        """Wait until so many nodes are ready. Raises NodesAway."""
        try:
            async with asyncio.timeout(wait_s):
                while self._ready < count:
                    self.check()
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            why = await self._stage.services.not_ready()
            reasons = told_late(why) or "every service is ready"
            raise NodesAway(
                f"{self._ready} of {count} nodes are ready in cell {CELL} after {wait_s:g} s: {reasons}"
            ) from None

    @property
    def _ready(self) -> int:
        return sum(node.status is NodeStatus.READY for node in self.state.nodes.values())

    def check(self) -> None:
        """Raise what ended the watch, if anything has."""
        if self._task is not None and self._task.done():
            self._task.result()

    def has_live_jobs(self, endless: Collection[str]) -> bool:
        """Whether a job waits or runs that will come to an end."""
        jobs = self.state.jobs
        return any(job not in endless or jobs[job].status in WAITING for job in jobs)

    def view(self) -> View:
        """The cell now."""
        state = self.state
        return View(
            version=state.version,
            at_ms=state.at_ms,
            running=len(state.jobs) - state.waiting,
            queued=state.waiting,
            over=state.over_next,
            pools=tuple(
                PoolView(name, pool.gpus_milli // GPU, pool.allocated_milli // GPU)
                for name, pool in sorted(state.pools.items())
            ),
        )

    async def _follow(self) -> None:
        while True:
            await self._follower.poll(POLL_WAIT_MS)
