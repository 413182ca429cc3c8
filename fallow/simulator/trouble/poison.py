"""Submissions on which a decision fails: defects of placement that nothing has found yet. Any other error of a decision
is one that the world has found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.scheduling_cycle import CycleResult, Start, schedule_queues
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.process import Process
from fallow.simulator.trouble.faults import Fault

if TYPE_CHECKING:
    from fallow.simulator.world import World

ONE_OF = 170
"""So many submissions hold one that is poisoned. Its own bytes say which, so that a world without one is as it was."""

ERRORS = (KeyError, ZeroDivisionError, OverflowError, RecursionError, AssertionError)


class Poison:
    """The poisoned jobs of a world. Each is so until it is set aside once, or accepted: copies of it run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._drawn: dict[str, type[Exception]] = {}
        self._injected: dict[str, bool] = {}
        for item in world.items:
            if isinstance(item.event, SubmitJob) and item.event.job.array is None:
                drawn = crc32(encode(item.event.job))
                if drawn % ONE_OF == 0:
                    self._drawn[item.event.key()] = ERRORS[drawn // ONE_OF % len(ERRORS)]

    def walk(self, state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
        """Placement's walk, which fails while a poisoned job is new."""
        for job, error in self._drawn.items():
            if job in state.jobs and not self._is_accepted(state.cell, job) and self._is_poisoned(job):
                raise error(_words(job))
        return schedule_queues(state, lines, now_ms, start)

    def failed(self, process: Process, reason: str, **_fields: object) -> None:
        """Placement says that a decision has failed: it must be by one of these jobs."""
        if not any(_words(job) in reason for job, is_so in self._injected.items() if is_so):
            self._world.violated("crash", f"{process.name} decides again: {reason}")

    def refused(self, process: Process, job: str, reason: str, **_fields: object) -> None:
        """Placement says that the state refused the start of a job: no fault of the world does that."""
        self._world.violated("crash", f"{process.name} decides again without job {job}: {reason}")

    def set_aside(self, reason: str, **_fields: object) -> None:
        """Placement says that it has set an input aside."""
        for job in self._injected:
            if _words(job) in reason:
                self._drawn.pop(job, None)

    def _is_accepted(self, cell: str, job: str) -> bool:
        known = self._world.oracles[self._world.ordinal(cell)].state
        return job in known.jobs or job in known.finished

    def _is_poisoned(self, job: str) -> bool:
        faults = self._world.faults
        if job not in self._injected:
            may_be = faults.is_active and Fault.POISONED in faults.only
            self._injected[job] = may_be and faults.inject(Fault.POISONED, job)
        return self._injected[job]


def _words(job: str) -> str:
    return f"poisoned by <{job}>"
