"""The driver of runs that only take time.

A run is over `duration_ms` after the cell time of its start decision, whichever process looks after it then: so an
executor that takes over ends it at the same time as the one before would have.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush

from fallow.services.executor.policy.turn import Observation, Start, Stop
from fallow.shared.cluster.fold.due import ROOM_LEAST
from fallow.shared.events.base import later
from fallow.shared.events.fields.values import RunStatus, VirtualRun

Live = tuple[str, int, str, int, int]
"""(job, attempt, node, rank, turn); rank -1 stands for all workers of a gang on the node."""


def _live(order: Start | Stop) -> Live:
    return (order.job, order.attempt, order.node, -1 if order.rank is None else order.rank, order.turn)


def _seen(key: Live, status: RunStatus, exit_code: int | None = None, text: str = "") -> Observation:
    job, attempt, node, rank, turn = key
    return Observation(node, job, attempt, status, exit_code, text=text, rank=None if rank < 0 else rank, turn=turn)


def end_of(run: VirtualRun, attempt: int, started_ms: int) -> tuple[int, RunStatus] | None:
    """When and how this attempt ends by itself; None: never. Of two ends at one time the failure counts."""
    ends_ms, fails_ms = run.duration_ms, run.fail_at_ms
    if (
        fails_ms is not None
        and (run.fail_attempts is None or attempt <= run.fail_attempts)
        and (ends_ms is None or fails_ms <= ends_ms)
    ):
        return later(started_ms, fails_ms), RunStatus.FAILED
    return None if ends_ms is None else (later(started_ms, ends_ms), RunStatus.FINISHED)


class VirtualDriver:
    """All virtual runs of one cell in one process."""

    def __init__(self) -> None:
        # What ends in the same millisecond ends together: a heap of times is far smaller than one of runs.
        self._times: list[int] = []
        self._due: dict[int, list[tuple[Live, int, RunStatus]]] = {}
        # When each was ordered: what was planned for a run is nothing to a later one of the same names.
        self._live: dict[Live, int] = {}
        self._planned, self._room = 0, ROOM_LEAST

    def start(self, order: Start) -> Observation:
        """The run is running at once; harmless when it runs already. A run of real processes cannot run here.

        To fail in the first attempts only counts each turn in which a worker enters as an attempt of its own.
        """
        key = _live(order)
        if not isinstance(order.run, VirtualRun):
            text = f"this node runs virtual runs only, not {order.run.driver}"
            return _seen(key, RunStatus.FAILED, text=text)
        if key not in self._live:
            self._live[key] = order.started_ms
            end = end_of(order.run, order.attempt + order.turn, order.started_ms)
            if end is not None:
                self._plan(end[0], key, order.started_ms, end[1])
        return _seen(key, RunStatus.RUNNING)

    def _plan(self, at_ms: int, key: Live, started_ms: int, status: RunStatus) -> None:
        due = self._due.get(at_ms)
        if due is None:
            due = self._due[at_ms] = []
            heappush(self._times, at_ms)
        due.append((key, started_ms, status))
        self._planned += 1
        if self._planned > self._room:
            self._let_go_of_ends()

    def _let_go_of_ends(self) -> None:
        """Runs that were stopped do not end by themselves any more. Looked at once as many may be pointless as not."""
        live = self._live
        due = {
            at_ms: [end for end in dict.fromkeys(ends) if live.get(end[0]) == end[1]]
            for at_ms, ends in self._due.items()
        }
        self._due = {at_ms: ends for at_ms, ends in due.items() if ends}
        self._times = sorted(self._due)
        self._planned = sum(map(len, self._due.values()))
        self._room = ROOM_LEAST + 2 * self._planned

    def stop(self, order: Stop) -> Observation:
        """Nothing is left of the run at once."""
        key = _live(order)
        self._live.pop(key, None)
        return _seen(key, RunStatus.STOPPED)

    def ended(self, now_ms: int) -> list[Observation]:
        """The runs whose time is over by `now_ms` (cell time), in the order of (time, job, attempt, node, rank)."""
        found, times, live = list[Observation](), self._times, self._live
        while times and times[0] <= now_ms:
            due = self._due.pop(heappop(times))
            self._planned -= len(due)
            due.sort()
            for key, started_ms, status in due:
                if live.get(key) == started_ms:
                    del live[key]
                    found.append(_seen(key, status, 0 if status is RunStatus.FINISHED else 1))
        return found

    def next_due_ms(self) -> int | None:
        """The cell time at which the next run ends by itself."""
        times, live = self._times, self._live
        while times:
            if any(live.get(key) == started_ms for key, started_ms, _ in self._due[times[0]]):
                return times[0]
            self._planned -= len(self._due.pop(heappop(times)))
        return None

    def forget(self, nodes: Container[str]) -> None:
        """Let go of the runs of these nodes: another process looks after them."""
        self._live = {key: started_ms for key, started_ms in self._live.items() if key[2] not in nodes}
