"""How far expected run times were from what came, by estimator: a run that was expected to take twice or half as long
as it did was expected wrongly by a factor of two.

Counted are jobs that were over after their only or last attempt, by what was expected when it started.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from fallow.services.metrics.policy.effect_dispatch import Acts, act_on
from fallow.services.metrics.policy.kant.waiting import percentile
from fallow.shared.cluster.model.run_time import run_estimate_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.run_times.learning import history_of
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import JobKind, JobSpec
from fallow.shared.events.operations import EstimatorKind

_INFERENCE = JobKind.INFERENCE
_DECLARED, _LEARNED = EstimatorKind.DECLARED, EstimatorKind.LEARNED

KEPT_MAX = 100_000
"""Errors of which percentiles are taken, of each estimator: less than 1 MB."""

RIGHT = 1_000
"""The factor of a run time that was expected as it came, in thousandths."""

FACTORS_MILLI = (1_100, 1_250, 1_500, 2_000, 3_000, 5_000, 10_000, 30_000, 100_000)


class RunTimeErrors:
    """The errors of one estimator, as factors in thousandths: `count` in all, and of these `too_short` ones.

    `buckets[k]` counts the factors that are at most `FACTORS_MILLI[k]` and larger than those of the bucket before; the
    last one, all larger.
    """

    def __init__(self) -> None:
        self.count = self.too_short = self.sum_milli = 0
        self.buckets = [0] * (len(FACTORS_MILLI) + 1)
        self._newest = array("q")

    def add(self, expected_ms: int, ran_ms: int) -> None:
        """One more."""
        expected_ms, ran_ms = max(1, expected_ms), max(1, ran_ms)
        factor = min(max(expected_ms, ran_ms) * RIGHT // min(expected_ms, ran_ms), 1 << 62)
        if len(self._newest) < KEPT_MAX:
            self._newest.append(factor)
        else:
            self._newest[self.count % KEPT_MAX] = factor
        self.count += 1
        self.too_short += expected_ms < ran_ms
        self.sum_milli += factor
        self.buckets[bisect_left(FACTORS_MILLI, factor)] += 1

    def percentile(self, percent: int) -> int | None:
        """The factor that so many per cent of the newest do not exceed; None of none."""
        return percentile(sorted(self._newest), percent)


Expected = tuple[tuple[EstimatorKind, int], ...]
"""How long a run was expected to take (ms), by each estimator that expected anything."""


class ExpectedRuns:
    """The errors of each estimator that expected anything."""

    def __init__(self) -> None:
        self.errors: dict[EstimatorKind, RunTimeErrors] = {}
        self._begun: dict[str, tuple[int, Expected]] = {}
        self.acts: Acts = {
            e.JobStarted: self._started,
            e.JobFinished: self._over,
            e.JobFailed: self._over,
            e.JobCancelled: self._over,
            e.JobRequeued: self._not_over,
        }

    def take(self, state: CellState, decision: Decision) -> None:
        """The next decision."""
        act_on(self.acts, state, decision.effects, decision.at_ms)

    def _started(self, state: CellState, effect: e.JobStarted, at_ms: int) -> None:
        job = state.jobs.get(effect.job)
        if job is None or job.spec.kind is _INFERENCE:
            return
        expected = _expected(state, job.spec)
        if expected:
            self._begun[effect.job] = (at_ms, expected)

    def _over(self, _: CellState, effect: e.JobFinished | e.JobFailed | e.JobCancelled, at_ms: int) -> None:
        begun_ms, expected = self._begun.pop(effect.job, (0, ()))
        for kind, expected_ms in expected:
            errors = self.errors.get(kind)
            if errors is None:
                errors = self.errors[kind] = RunTimeErrors()
            errors.add(expected_ms, at_ms - begun_ms)

    def _not_over(self, _: CellState, effect: e.JobRequeued, __: int) -> None:
        self._begun.pop(effect.job, None)


def _expected(state: CellState, spec: JobSpec) -> Expected:
    """What each estimator expects of a job that starts now. What is learned is bounded by no limit of the job: that
    would be the limit's merit.
    """
    declared_ms, history = run_estimate_ms(state, spec), history_of(state, spec)
    declared = () if declared_ms is None else ((_DECLARED, declared_ms),)
    return declared if history is None else (*declared, (_LEARNED, history.run_ms()))
