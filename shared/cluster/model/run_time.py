"""How long a job will run, as far as it has told. Where that is wrong it costs efficiency, and nothing else.

A job's own guess counts before its limit, and the limit before what the cell assumes of jobs that tell nothing. A job
that outlives its estimate is taken to run for half as long again as it has run so far.
"""

from __future__ import annotations

from shared.cluster.model.job import Job, JobStatus
from shared.cluster.model.state import CellState
from shared.events.base import later
from shared.events.values import JobKind, JobSpec, WorkerPlace


def run_estimate_ms(state: CellState, spec: JobSpec) -> int | None:
    """How long a run of the job would take; None where nothing is known, or where it runs without end."""
    if spec.kind is JobKind.INFERENCE:
        return None
    limit_ms, guess_ms = spec.max_run_ms, spec.estimate_run_ms
    if guess_ms is not None:
        return guess_ms if limit_ms is None else min(guess_ms, limit_ms)
    return limit_ms if limit_ms is not None else state.policy.maintenance_lead_ms or None


def end_estimate_ms(state: CellState, job: Job, place: WorkerPlace, now_ms: int) -> int | None:
    """When a worker of a job that holds places will be over, as seen at `now_ms` and not before that."""
    if job.status is JobStatus.STOPPING:
        return now_ms
    run_ms = run_estimate_ms(state, job.spec)
    if run_ms is None or job.started_ms is None:
        return None
    since_ms = max(job.started_ms, place.since_ms)
    end_ms = later(since_ms, run_ms)
    if end_ms > now_ms:
        return end_ms
    extended_ms = later(now_ms, (now_ms - since_ms) // 2 + 1)
    limit_ms = job.spec.max_run_ms
    return extended_ms if limit_ms is None else min(extended_ms, max(now_ms, since_ms + limit_ms))
