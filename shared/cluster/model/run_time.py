"""How long a job will run, as far as it has told. Where that is wrong it costs efficiency, and nothing else.

A job's own guess counts before its limit, and the limit before what the cell assumes of jobs that tell nothing. A job
that outlives its estimate is taken to run for half as long again as it has run so far.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import LATEST_MS, later
from fallow.shared.events.fields.values import JobKind, JobSpec, WorkerPlace


def run_estimate_ms(state: CellState, spec: JobSpec) -> int | None:
    """How long a run of the job would take; None where nothing is known, or where it runs without end."""
    if spec.kind is JobKind.INFERENCE:
        return None
    limit_ms, guess_ms = spec.max_run_ms, spec.estimate_run_ms
    if guess_ms is not None:
        return guess_ms if limit_ms is None else min(guess_ms, limit_ms)
    return limit_ms if limit_ms is not None else state.policy.default_run_estimate_ms or None


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


OVER = RunEnd(0, 0, 0)
"""Of what is over at any time."""


def run_end(state: CellState, job: Job, place: WorkerPlace) -> RunEnd | None:
    """When a worker of a job that holds places will be over; None where nothing is known, or where it runs without end.
    It stays the same until the job is told to stop, its limit is changed, or the cell assumes another run time.
    """
    if job.status is JobStatus.STOPPING:
        return OVER
    run_ms = run_estimate_ms(state, job.spec)
    if run_ms is None or job.started_ms is None:
        return None
    since_ms, limit_ms = max(job.started_ms, place.since_ms), job.spec.max_run_ms
    return RunEnd(since_ms, later(since_ms, run_ms), LATEST_MS if limit_ms is None else since_ms + limit_ms)


def end_estimate_ms(state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
    """When a worker of a job that holds places will be over, as seen at `now_ms` and not before that."""
    end = run_end(state, job, place)
    return None if end is None else end.at(now_ms)
