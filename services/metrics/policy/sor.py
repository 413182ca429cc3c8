"""SOR, the scheduling occupancy rate (Kant, section 4): the GPU time that jobs held, of all the GPU time that there
was.

    SOR[t0, t1] = sum over jobs of GPUs x (its time on them within [t0, t1]) / (all GPUs x (t1 - t0))

Counted from the jobs' own starts and ends, so it shares no arithmetic with GAR, whose mean it equals while the capacity
is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision
from shared.events.values import WorkerPlace

CAPACITY = (e.NodeChanged, e.DeviceChanged, e.LeaseExpired, e.NodeLent, e.NodeLoanDraining, e.NodeReclaimed)
"""Effects that may change how many GPUs there are."""


class Held(NamedTuple):
    """What an attempt holds, in milli-GPUs, and since when."""

    milli: int
    since_ms: int


class Sor:
    """SOR of a cell, from the first decision behind which it has GPUs."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._closed_milli_ms = 0
        self._open_milli = 0
        self._open_since = 0
        self._gpus_milli = 0
        self._since_ms = 0
        self._gpu_milli_ms = 0
        self._is_capacity_noted = False
        self._acts: dict[type[e.Effect], Callable[[Any, int], None]] = {
            e.JobStarted: self._hold,
            e.JobResized: self._hold,
            e.JobResizing: self._hold_more,
            e.JobPreempted: self._let_go,
            e.JobRequeued: self._let_go,
            e.JobFinished: self._let_go,
            e.JobFailed: self._let_go,
            e.JobCancelled: self._let_go,
            **dict.fromkeys(CAPACITY, self._note_capacity),
        }

    def begin(self, state: CellState) -> None:
        """Start from a state in the middle of a cell's life: what holds GPUs holds them from now on."""
        self._gpus_milli, self._since_ms = _gpus_milli(state), state.at_ms
        for job in state.jobs.values():
            if job.workers or job.joining:
                self._open(job.id, _milli(job.workers + job.joining), state.at_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        at_ms = decision.at_ms
        for effect in decision.effects:
            act = self._acts.get(type(effect))
            if act is not None:
                act(effect, at_ms)
        if self._is_capacity_noted:
            self._is_capacity_noted = False
            self._count_gpus(_gpus_milli(state), at_ms)

    def _count_gpus(self, gpus_milli: int, at_ms: int) -> None:
        if gpus_milli != self._gpus_milli:
            self._gpu_milli_ms += self._gpus_milli * (at_ms - self._since_ms)
            self._gpus_milli, self._since_ms = gpus_milli, at_ms

    def value(self, until_ms: int) -> Fraction | None:
        """SOR up to `until_ms`; None while there was no GPU time at all."""
        there_was = self._gpu_milli_ms + self._gpus_milli * max(0, until_ms - self._since_ms)
        if not there_was:
            return None
        return Fraction(self._closed_milli_ms + self._open_milli * until_ms - self._open_since, there_was)

    def _note_capacity(self, _: e.Effect, __: int) -> None:
        """Counted once behind the decision, and not behind every one: to count is to look at all nodes that changed."""
        self._is_capacity_noted = True

    def _hold(self, effect: e.JobStarted | e.JobResized, at_ms: int) -> None:
        self._let_go(effect, at_ms)
        self._open(effect.job, _milli(effect.workers), at_ms)

    def _hold_more(self, effect: e.JobResizing, at_ms: int) -> None:
        before = self._held.get(effect.job)
        self._let_go(effect, at_ms)
        self._open(effect.job, _milli(effect.add) + (before.milli if before is not None else 0), at_ms)

    def _open(self, job: str, milli: int, at_ms: int) -> None:
        self._held[job] = Held(milli, at_ms)
        self._open_milli += milli
        self._open_since += milli * at_ms

    def _let_go(self, effect: e.JobEffect, at_ms: int) -> None:
        held = self._held.pop(effect.job, None)
        if held is not None:
            self._closed_milli_ms += held.milli * (at_ms - held.since_ms)
            self._open_milli -= held.milli
            self._open_since -= held.milli * held.since_ms


def _milli(places: tuple[WorkerPlace, ...]) -> int:
    milli = 0
    for place in places:
        milli += place.gpu_milli
    return milli


def _gpus_milli(state: CellState) -> int:
    return sum(pool.gpus_milli for pool in state.pools.values())
