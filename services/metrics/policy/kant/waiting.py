"""JWTD, the job waiting time distribution (Kant, section 4): from submission to first start, for each class of job
sizes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TypeVar

from fallow.services.metrics.policy.effect_dispatch import Acts, act_on
from fallow.services.metrics.policy.groups import Group, Whose
from fallow.services.metrics.policy.size_classes import SIZE_CLASSES, size_class
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobSpec

KEPT_MAX = 1_000_000
"""Waits of which percentiles are taken, for each group: 8 MB."""

SECOND_MS = 1_000
BUCKETS_MS = tuple(s * SECOND_MS for s in (1, 5, 15, 60, 300, 900, 3_600, 10_800, 43_200, 86_400, 259_200, 604_800))
"""From a second to a week."""


class Waits:
    """Waits in milliseconds. Count, sum and `buckets` are of all; percentiles of the newest `kept_max`.

    `buckets[k]` counts the waits that are at most `BUCKETS_MS[k]` and longer than the bucket before; the last one, all
    longer.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.count = 0
        self.sum_ms = 0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)
        self._kept_max = kept_max
        self._newest = array("q")

    def add(self, wait_ms: int) -> None:
        """One more."""
        if len(self._newest) < self._kept_max:
            self._newest.append(wait_ms)
        else:
            self._newest[self.count % self._kept_max] = wait_ms
        self.count += 1
        self.buckets[bisect_left(BUCKETS_MS, wait_ms)] += 1
        self.sum_ms += wait_ms

    def merge(self, other: Waits) -> None:
        """Take in others; of each, its newest are kept."""
        self.count += other.count
        self.sum_ms += other.sum_ms
        self.buckets = [ours + theirs for ours, theirs in zip(self.buckets, other.buckets, strict=True)]
        self._newest.extend(other._newest)

    def mean_ms(self) -> Fraction | None:
        """The mean of all; None of none."""
        return Fraction(self.sum_ms, self.count) if self.count else None

    def ordered(self) -> list[int]:
        """The newest, from short to long."""
        return sorted(self._newest)


Value = TypeVar("Value", int, float)


def percentile(ordered: Sequence[Value], percent: int) -> Value | None:
    """The smallest value that at least so many per cent of the values do not exceed (nearest rank); None of nothing."""
    return ordered[rank_of(len(ordered), percent) - 1] if ordered else None


def rank_of(count: int, percent: int) -> int:
    """Which of so many values in order that is, counted from 1."""
    return max(1, -(-count * percent // 100))


Unstarted = tuple[int, str, str]
"""A job that has not started yet: when it was submitted, its tenant and its size class."""


class WaitingTimes:
    """Every first start adds its job's wait to its group: its tenant, the pool in which it starts, the class of its
    size. Jobs in `excluded` do not count, such as those that a replay carries over.
    """

    def __init__(
        self, excluded: Collection[str] = frozenset(), kept_max: int = KEPT_MAX, whose: Whose | None = None
    ) -> None:
        self.groups: dict[Group, Waits] = {}
        self._found: dict[tuple[str, str, str], Waits] = {}
        self._whose = whose or Whose()
        self._kept_max = kept_max
        self._excluded = excluded
        self._unstarted: dict[str, Unstarted] = {}
        self.acts: Acts = {
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

    def take(self, state: CellState, decision: Decision) -> None:
        """The next decision. A job may start and be over in it, so the state behind it does not tell of its wait."""
        act_on(self.acts, state, decision.effects, decision.at_ms)

    def merged(self, field: str) -> dict[str, Waits]:
        """The waits by `tenant`, `pool` or `size_class`."""
        found: dict[str, Waits] = {}
        for group, waits in self.groups.items():
            name = getattr(group, field)
            if name not in found:
                found[name] = Waits(self._kept_max)
            found[name].merge(waits)
        return found

    @property
    def classes(self) -> dict[str, Waits]:
        """The waits of every class of sizes, from small to large, those of which none has started too."""
        found = self.merged("size_class")
        return {name: found.get(name) or Waits(self._kept_max) for name in SIZE_CLASSES}

    def _enqueued(self, _: CellState, effect: e.JobEnqueued, __: int) -> None:
        self._expect(effect.spec, effect.submit_ms)

    def _updated(self, state: CellState, effect: e.JobUpdated, _: int) -> None:
        unstarted, job = self._unstarted.get(effect.job), state.jobs.get(effect.job)
        if unstarted is not None and job is not None:
            self._expect(effect.applied_to(job.spec), unstarted[0])

    def _started(self, state: CellState, effect: e.JobStarted, at_ms: int) -> None:
        unstarted = self._unstarted.pop(effect.job, None)
        if unstarted is None:
            return
        submit_ms, tenant, size = unstarted
        key = (tenant, self._whose.start(state, effect)[1], size)
        waits = self._found.get(key)
        if waits is None:
            waits = self._found[key] = self.groups[Group(*key)] = Waits(self._kept_max)
        waits.add(max(0, at_ms - submit_ms))

    def _cancelled(self, _: CellState, effect: e.JobCancelled, __: int) -> None:
        self._unstarted.pop(effect.job, None)

    def _expect(self, spec: JobSpec, submit_ms: int) -> None:
        if not self._excluded or spec.id not in self._excluded:
            tenant = self._whose.named(spec.tenant)
            self._unstarted[spec.id] = (submit_ms, tenant, size_class(spec.gpus_milli))

    def count(self) -> int:
        """How many jobs of all sizes."""
        return sum(waits.count for waits in self.groups.values())

    def mean_ms(self) -> Fraction | None:
        """The mean over jobs of all sizes."""
        count = self.count()
        return Fraction(sum(waits.sum_ms for waits in self.groups.values()), count) if count else None

    def ordered(self) -> list[int]:
        """The waits of all sizes, from short to long."""
        return sorted(wait for waits in self.groups.values() for wait in waits.ordered())
