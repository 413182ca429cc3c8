"""When a failed job is tried again, and when no more."""

from __future__ import annotations

from shared.cluster.job import Job
from shared.events.base import later
from shared.events.effects import JobFailed, JobRequeued
from shared.events.reasons import FailReason, RequeueReason

RUNS_WELL_MS = 3_600_000
"""A job that ran for so long begins to count its losses anew."""

LOSSES_MOST = 1_000


def backoff_ms(job: Job, failures: int) -> int:
    """The pause before the next attempt: it doubles with each failure, up to the job's own maximum."""
    retry = job.spec.retry
    return min(retry.backoff_ms << min(max(failures - 1, 0), 40), retry.backoff_most_ms)


def after_failure(job: Job, now_ms: int, text: str) -> JobRequeued | JobFailed:
    """A failure that counts: back to the queue while the budget lasts."""
    failures = job.failures + 1
    if failures > job.spec.retry.budget:
        return JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED, text=text)
    not_before_ms = later(now_ms, backoff_ms(job, failures))
    return JobRequeued(
        job=job.id,
        reason=RequeueReason.WORKER_FAILED,
        not_before_ms=not_before_ms,
        failures=failures,
        losses=job.losses,
    )


def after_start_timeout(job: Job, now_ms: int) -> JobRequeued:
    """A gang that did not come up: not the job's fault, so nothing counts, but each further attempt waits longer."""
    not_before_ms = later(now_ms, backoff_ms(job, job.attempt))
    return JobRequeued(
        job=job.id,
        reason=RequeueReason.START_TIMED_OUT,
        not_before_ms=not_before_ms,
        failures=job.failures,
        losses=job.losses,
    )


def after_loss(job: Job, now_ms: int) -> JobRequeued:
    """A loss by infrastructure: nothing counts against the job, and the first time it is back at once. When it is lost
    again and again, each further attempt waits longer, so that it does not go down with the same nodes each time.
    """
    has_run_well = job.running_ms is not None and now_ms - job.running_ms >= RUNS_WELL_MS
    losses = 1 if has_run_well else min(job.losses + 1, LOSSES_MOST)
    wait_ms = backoff_ms(job, losses - 1) if losses > 1 else 0
    return JobRequeued(
        job=job.id,
        reason=RequeueReason.INFRASTRUCTURE,
        not_before_ms=later(now_ms, wait_ms),
        failures=job.failures,
        losses=losses,
    )


def at_once(job: Job, now_ms: int, reason: RequeueReason) -> JobRequeued:
    """It ended for somebody else's sake: back in its old place, at once."""
    return JobRequeued(job=job.id, reason=reason, not_before_ms=now_ms, failures=job.failures, losses=job.losses)
