"""How long a job will run, by what it has told or by how long others like it have run. Where that is wrong it costs
efficiency, and nothing else.

A job's own guess counts before its limit, and the limit before what the cell assumes of jobs that tell nothing. A job
that outlives its estimate is taken to run for half as long again as it has run so far.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.run_times.history import RunHistory, same_until_ms
from fallow.shared.cluster.run_times.learning import history_of
from fallow.shared.events.base import LATEST_MS, later
from fallow.shared.events.fields.values import JobKind, JobSpec, WorkerPlace
from fallow.shared.events.operations import EstimatorKind

_NONE, _LEARNED = EstimatorKind.NONE, EstimatorKind.LEARNED


def run_estimate_ms(state: CellState, spec: JobSpec) -> int | None:
    """How long a run of the job would take by what was told; None where nothing is known, or where it runs without
    end.
    """
    if spec.kind is JobKind.INFERENCE:
        return None
    limit_ms, guess_ms = spec.max_run_ms, spec.estimate_run_ms
    if guess_ms is not None:
        return guess_ms if limit_ms is None else min(guess_ms, limit_ms)
    return limit_ms if limit_ms is not None else state.policy.default_run_estimate_ms or None


def expected_run_ms(state: CellState, spec: JobSpec, by: EstimatorKind | None = None) -> int | None:
    """The same by this estimator, or by that of the cell."""
    by = by or state.policy.estimator
    if by is _NONE or spec.kind is JobKind.INFERENCE:
        return None
    history = history_of(state, spec) if by is _LEARNED else None
    if history is None:
        return run_estimate_ms(state, spec)
    return history.run_ms() if spec.max_run_ms is None else min(history.run_ms(), spec.max_run_ms)


class RunEnd(NamedTuple):
    """When a worker that began at `since_ms` will be over: at `end_ms`, and once that has passed later and later, up to
    `latest_ms`.
    """

    since_ms: int
    end_ms: int
    latest_ms: int

    def at(self, now_ms: int) -> int:
        """The end as seen at `now_ms`, and not before that."""
        since_ms, end_ms, latest_ms = self
        if end_ms > now_ms:
            return end_ms
        return min(later(now_ms, (now_ms - since_ms) // 2 + 1), max(now_ms, latest_ms))

    def same_until_ms(self, now_ms: int) -> int:
        """The time from which on the end may be seen as another one: at each, once the estimate is outlived."""
        return max(self.end_ms, now_ms)


class LearnedEnd(NamedTuple):
    """The same by how long others ran: the longer it has run, the later it will be over."""

    since_ms: int
    history: RunHistory
    latest_ms: int

    def at(self, now_ms: int) -> int:
        """The end as seen at `now_ms`, and not before that."""
        since_ms, history, latest_ms = self
        end_ms = later(since_ms, history.run_ms(max(0, now_ms - since_ms)))
        return min(end_ms, max(now_ms, latest_ms))

    def same_until_ms(self, now_ms: int) -> int:
        """The time from which on the end may be seen as another one: at each, once it should have been stopped."""
        since_ms, _, latest_ms = self
        return min(later(since_ms, same_until_ms(max(0, now_ms - since_ms))), max(now_ms, latest_ms))


OVER = RunEnd(0, 0, 0)
"""Of what is over at any time."""


def run_end(
    state: CellState, job: Job, place: WorkerPlace, by: EstimatorKind | None = None
) -> RunEnd | LearnedEnd | None:
    """When a worker of a job that holds places will be over, by this estimator or that of the cell; None where nothing
    is known, or where it runs without end. It stays the same until the job is told to stop, its limit is changed, the
    cell assumes another run time, goes by another estimator or has learned something.
    """
    if job.status is JobStatus.STOPPING:
        return OVER
    by = by or state.policy.estimator
    if by is _NONE or job.started_ms is None or job.spec.kind is JobKind.INFERENCE:
        return None
    since_ms, limit_ms = max(job.started_ms, place.since_ms), job.spec.max_run_ms
    latest_ms = LATEST_MS if limit_ms is None else since_ms + limit_ms
    history = history_of(state, job.spec) if by is _LEARNED else None
    if history is not None:
        return LearnedEnd(since_ms, history, latest_ms)
    run_ms = run_estimate_ms(state, job.spec)
    return None if run_ms is None else RunEnd(since_ms, later(since_ms, run_ms), latest_ms)


def end_estimate_ms(
    state: CellState, job: Job, place: WorkerPlace, now_ms: int, by: EstimatorKind | None = None
) -> int | None:
    """When a worker of a job that holds places will be over, as seen at `now_ms` and not before that."""
    end = run_end(state, job, place, by)
    return None if end is None else end.at(now_ms)
