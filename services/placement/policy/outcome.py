"""What becomes of an attempt of which nothing is left on any node."""

from __future__ import annotations

from services.placement.policy.retry import after_failure, after_loss, after_start_timeout, at_once
from shared.cluster.job import Job
from shared.events.effects import AnyEffect, JobCancelled, JobFailed, JobFinished, JobPreempted
from shared.events.reasons import FailReason, RequeueReason, StopReason
from shared.events.values import RunStatus

_INFRASTRUCTURE = frozenset({StopReason.NODE_LOST, StopReason.DEVICE_FAILED})


def outcome_of(job: Job, runs: dict[str, RunStatus], now_ms: int, text: str = "") -> list[AnyEffect]:
    """The effects that end the attempt. `runs` are all over.

    An attempt whose runs all finished has finished, whatever else was wanted of it: its work is done.
    """
    if all(status is RunStatus.FINISHED for status in runs.values()):
        return [JobFinished(job=job.id, attempt=job.attempt)]
    why = job.stop_why
    if why is StopReason.CANCELLED:
        return [JobCancelled(job=job.id)]
    if why is None or why is StopReason.WORKER_FAILED:
        if RunStatus.FAILED in runs.values():
            return [after_failure(job, now_ms, text or "a worker failed")]
        return [after_loss(job, now_ms)]
    if why is StopReason.RUN_TIME_LIMIT:
        return [JobFailed(job=job.id, reason=FailReason.RUN_TIME_LIMIT, text="ran longer than max_run_ms")]
    if why is StopReason.START_TIMED_OUT:
        return [after_start_timeout(job, now_ms)]
    if why is StopReason.DRAINED:
        return [at_once(job, now_ms, RequeueReason.INFRASTRUCTURE)]
    if why in _INFRASTRUCTURE:
        return [after_loss(job, now_ms)]
    return [
        JobPreempted(job=job.id, attempt=job.attempt, why=why, for_whom=job.stop_for),
        at_once(job, now_ms, RequeueReason.PREEMPTED),
    ]
