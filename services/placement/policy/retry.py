"""When a failed job is tried again, and when no more."""

from __future__ import annotations

from shared.cluster.job import Job
from shared.events.base import later
from shared.events.effects import JobFailed, JobRequeued
from shared.events.reasons import FailReason, RequeueReason


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
    return JobRequeued(job=job.id, reason=RequeueReason.WORKER_FAILED, not_before_ms=not_before_ms, failures=failures)


def after_start_timeout(job: Job, now_ms: int) -> JobRequeued:
    """A gang that did not come up: not the job's fault, so nothing counts, but each further attempt waits longer."""
    not_before_ms = later(now_ms, backoff_ms(job, job.attempt))
    return JobRequeued(
        job=job.id, reason=RequeueReason.START_TIMED_OUT, not_before_ms=not_before_ms, failures=job.failures
    )


def at_once(job: Job, now_ms: int, reason: RequeueReason) -> JobRequeued:
    """A loss by infrastructure or for somebody else's sake: back in its old place, at once."""
    return JobRequeued(job=job.id, reason=reason, not_before_ms=now_ms, failures=job.failures)
