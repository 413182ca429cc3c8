"""JWTD, the job waiting time distribution (Kant, section 4): from submission to first start, for each class of job
sizes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from services.metrics.policy.size_classes import SIZE_CLASSES, size_class
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision
from shared.events.values import JobSpec

KEPT_MOST = 1_000_000
"""Waits of which percentiles are taken, for each class: 8 MB."""

SECOND_MS = 1_000
BUCKETS_MS = tuple(s * SECOND_MS for s in (1, 5, 15, 60, 300, 900, 3_600, 10_800, 43_200, 86_400, 259_200, 604_800))
"""From a second to a week."""


class Waits:
    """Waits in milliseconds. Count, sum and `buckets` are of all; percentiles of the newest `kept_most`.

    `buckets[k]` counts the waits that are at most `BUCKETS_MS[k]` and longer than the bucket before; the last one, all
    longer.
    """

    def __init__(self, kept_most: int = KEPT_MOST) -> None:
        self.count = 0
        self.sum_ms = 0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)
        self._kept_most = kept_most
        self._newest = array("q")

    def add(self, wait_ms: int) -> None:
        """One more."""
        if len(self._newest) < self._kept_most:
            self._newest.append(wait_ms)
        else:
            self._newest[self.count % self._kept_most] = wait_ms
        self.count += 1
        self.buckets[bisect_left(BUCKETS_MS, wait_ms)] += 1
        self.sum_ms += wait_ms

    def mean_ms(self) -> Fraction | None:
        """The mean of all; None of none."""
        return Fraction(self.sum_ms, self.count) if self.count else None

    def ordered(self) -> list[int]:
        """The newest, from short to long."""
        return sorted(self._newest)


def percentile(ordered: Sequence[int], percent: int) -> int | None:
    """The smallest value that at least so many per cent of the values do not exceed (nearest rank); None of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


class Unstarted(NamedTuple):
    """A job that has not started yet."""

    submit_ms: int
    size_class: str


class WaitingTimes:
    """Every first start adds its job's wait to the class of its size. Jobs in `excluded` do not count, such as those
    that a replay carries over.
    """

    def __init__(self, excluded: Collection[str] = frozenset(), kept_most: int = KEPT_MOST) -> None:
        self.classes = {name: Waits(kept_most) for name in SIZE_CLASSES}
        self._excluded = excluded
        self._unstarted: dict[str, Unstarted] = {}
        self._acts: dict[type[e.Effect], Callable[[Any, int], None]] = {
            e.JobEnqueued: self._enqueued,
            e.JobUpdated: self._updated,
            e.JobStarted: self._started,
            e.JobCancelled: self._cancelled,
        }

    def begin(self, state: CellState) -> None:
        """Start from a state in the middle of a cell's life."""
        for job in state.jobs.values():
            if not job.attempt:
                self._expect(job.spec, job.submit_ms)

    def take(self, state: CellState, decision: Decision) -> None:  # noqa: ARG002 - all accumulators are fed alike
        """The next decision. A job may start and be over in it, so the state behind it does not tell."""
        at_ms = decision.at_ms
        for effect in decision.effects:
            act = self._acts.get(type(effect))
            if act is not None:
                act(effect, at_ms)

    def _enqueued(self, effect: e.JobEnqueued, _: int) -> None:
        self._expect(effect.spec, effect.submit_ms)

    def _updated(self, effect: e.JobUpdated, _: int) -> None:
        unstarted = self._unstarted.get(effect.spec.id)
        if unstarted is not None:
            self._expect(effect.spec, unstarted.submit_ms)

    def _started(self, effect: e.JobStarted, at_ms: int) -> None:
        unstarted = self._unstarted.pop(effect.job, None)
        if unstarted is not None:
            self.classes[unstarted.size_class].add(max(0, at_ms - unstarted.submit_ms))

    def _cancelled(self, effect: e.JobCancelled, _: int) -> None:
        self._unstarted.pop(effect.job, None)

    def _expect(self, spec: JobSpec, submit_ms: int) -> None:
        if spec.id not in self._excluded:
            self._unstarted[spec.id] = Unstarted(submit_ms, size_class(spec.gpus_milli))

    def count(self) -> int:
        """How many jobs of all sizes."""
        return sum(waits.count for waits in self.classes.values())

    def mean_ms(self) -> Fraction | None:
        """The mean over jobs of all sizes."""
        count = self.count()
        return Fraction(sum(waits.sum_ms for waits in self.classes.values()), count) if count else None

    def ordered(self) -> list[int]:
        """The waits of all sizes, from short to long."""
        return sorted(wait for waits in self.classes.values() for wait in waits.ordered())
