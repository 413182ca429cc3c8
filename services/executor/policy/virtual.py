"""The driver of runs that only take time.

A run is over `duration_ms` after the cell time of its start decision, whoever looks after it then: so an executor that
takes over ends it at the same time as the one before would have.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush

from services.executor.policy.turn import Observation, Start, Stop
from shared.events.values import RunStatus, VirtualRun

RunKey = tuple[str, int, str]
"""(job, attempt, node)."""


def end_of(run: VirtualRun, attempt: int, started_ms: int) -> tuple[int, RunStatus] | None:
    """When and how this attempt ends by itself; None: never. Of two ends at one time the failure counts."""
    ends_ms, fails_ms = run.duration_ms, run.fail_at_ms
    if (
        fails_ms is not None
        and (run.fail_attempts is None or attempt <= run.fail_attempts)
        and (ends_ms is None or fails_ms <= ends_ms)
    ):
        return started_ms + fails_ms, RunStatus.FAILED
    return None if ends_ms is None else (started_ms + ends_ms, RunStatus.FINISHED)


class VirtualDriver:
    """All virtual runs of one cell in one process."""

    def __init__(self) -> None:
        self._due: list[tuple[int, RunKey, RunStatus]] = []
        self._live: dict[RunKey, None] = {}

    def start(self, order: Start) -> Observation:
        """The run is running at once; harmless when it runs already. A run of real processes cannot run here."""
        if not isinstance(order.run, VirtualRun):
            text = f"this node runs virtual runs only, not {order.run.driver}"
            return Observation(order.node, order.job, order.attempt, RunStatus.FAILED, text=text)
        key = (order.job, order.attempt, order.node)
        if key not in self._live:
            self._live[key] = None
            end = end_of(order.run, order.attempt, order.started_ms)
            if end is not None:
                heappush(self._due, (end[0], key, end[1]))
        return Observation(order.node, order.job, order.attempt, RunStatus.RUNNING)

    def stop(self, order: Stop) -> Observation:
        """Nothing is left of the run at once."""
        self._live.pop((order.job, order.attempt, order.node), None)
        return Observation(order.node, order.job, order.attempt, RunStatus.STOPPED)

    def ended(self, now_ms: int) -> list[Observation]:
        """The runs whose time is over by `now_ms` (cell time), in the order of (time, job, attempt, node)."""
        found, due, live = list[Observation](), self._due, self._live
        while due and due[0][0] <= now_ms:
            _, key, status = heappop(due)
            if key in live:
                del live[key]
                job, attempt, node = key
                found.append(Observation(node, job, attempt, status, 0 if status is RunStatus.FINISHED else 1))
        return found

    def next_due_ms(self) -> int | None:
        """The cell time at which the next run ends by itself."""
        while self._due and self._due[0][1] not in self._live:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def forget(self, nodes: Container[str]) -> None:
        """Let go of the runs of these nodes: somebody else looks after them."""
        self._live = {key: None for key in self._live if key[2] not in nodes}
