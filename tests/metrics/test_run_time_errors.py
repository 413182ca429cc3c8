"""By which factor each estimator was wrong."""

from __future__ import annotations

import pytest

from fallow.services.metrics.policy.run_time_errors import FACTORS_MILLI, ExpectedRuns, RunTimeErrors
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.operations import CellPolicy, EstimatorKind
from fallow.shared.events.reasons import RequeueReason
from tests.cluster.worlds.examples import enqueued, node, place, started

LEARNED, DECLARED = EstimatorKind.LEARNED, EstimatorKind.DECLARED


@pytest.mark.parametrize(
    ("expected_ms", "ran_ms", "factor", "too_short"),
    [(10, 10, 1_000, 0), (20, 10, 2_000, 0), (10, 20, 2_000, 1), (0, 0, 1_000, 0), (5, 0, 5_000, 0)],
)
def test_a_run_that_took_twice_or_half_as_long_was_wrong_by_two(
    expected_ms: int, ran_ms: int, factor: int, too_short: int
) -> None:
    errors = RunTimeErrors()
    errors.add(expected_ms, ran_ms)
    assert (errors.percentile(50), errors.too_short, sum(errors.buckets)) == (factor, too_short, 1)


def test_buckets_count_what_is_at_most_their_bound() -> None:
    errors = RunTimeErrors()
    for factor in (1_000, FACTORS_MILLI[0], FACTORS_MILLI[0] + 1, 10**9):
        errors.add(factor, 1_000)
    assert (errors.buckets[0], errors.buckets[1], errors.buckets[-1]) == (2, 1, 1)
    assert RunTimeErrors().percentile(50) is None


class Watched:
    """A cell whose expected runs are followed, effect by effect."""

    def __init__(self, estimator: EstimatorKind) -> None:
        self.state, self.found, self.at_ms = CellState("cell-a"), ExpectedRuns(), 0
        self.tell(node("n1", gpus=8), e.PolicySet(policy=CellPolicy(estimator=estimator)))

    def tell(self, *effects: e.AnyEffect, after_ms: int = 0) -> None:
        self.at_ms += after_ms
        for effect in effects:
            apply(self.state, effect, self.at_ms)
            act = self.found.acts.get(type(effect))
            if act is not None:
                act(self.state, effect, self.at_ms)

    def runs(self, job: str, run_ms: int, told_ms: int | None = None) -> None:
        self.tell(enqueued(job, estimate_run_ms=told_ms), started(job, place(0, "n1", 0)))
        self.tell(e.JobFinished(job=job, attempt=1), after_ms=run_ms)


def test_each_estimator_is_judged_by_what_it_expected_at_the_start() -> None:
    cell = Watched(LEARNED)
    for number in range(5):
        cell.runs(f"job-{number}", 4_000, told_ms=8_000)
    errors = cell.found.errors
    assert (errors[DECLARED].count, errors[DECLARED].percentile(50)) == (5, 2_000)
    assert errors[LEARNED].count == 1  # of the first four it knew nothing
    factor = errors[LEARNED].percentile(99)
    assert factor is not None
    assert factor <= 1_250


def test_where_nothing_is_learned_or_told_there_are_no_errors() -> None:
    cell = Watched(DECLARED)
    for number in range(6):
        cell.runs(f"job-{number}", 4_000)
    assert not cell.found.errors


def test_an_attempt_that_is_tried_again_is_not_judged() -> None:
    cell = Watched(DECLARED)
    cell.tell(enqueued("job", estimate_run_ms=50), started("job", place(0, "n1", 0)))
    again = e.JobRequeued(job="job", reason=RequeueReason.INFRASTRUCTURE, not_before_ms=0, failures=0, losses=1)
    cell.tell(again, after_ms=9_000)
    cell.tell(started("job", place(0, "n1", 0), attempt=2))
    cell.tell(e.JobFinished(job="job", attempt=2), after_ms=100)
    errors = cell.found.errors[DECLARED]
    assert (errors.count, errors.percentile(50), errors.too_short) == (1, 2_000, 1)
