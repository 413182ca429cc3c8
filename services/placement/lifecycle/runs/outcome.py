"""What becomes of an attempt of which nothing is left on any node."""

from __future__ import annotations

from collections.abc import Mapping

from fallow.services.placement.lifecycle.runs.retry import (
    after_failure,
    after_loss,
    after_start_timeout,
    at_once,
    avoided,
)
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.events.effects import AnyEffect, JobCancelled, JobFailed, JobFinished, JobPreempted
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.reasons import FailReason, RequeueReason, StopReason

_INFRASTRUCTURE = frozenset({StopReason.NODE_LOST, StopReason.DEVICE_FAILED})


def outcome_of(
    job: Job, runs: dict[str, RunStatus], now_ms: int, text: str = "", fault: str | None = None
) -> list[AnyEffect]:
    """The effects that end the attempt. `runs` are all over. Where it ends without having been told to stop, `text` is
    what was said of a worker that failed, and `fault` what a node said of its own fault: else the order to stop tells.

    An attempt whose runs all finished has finished, whatever else was wanted of it: its work is done.
    """
    if all(status is RunStatus.FINISHED for status in runs.values()):
        return [JobFinished(job=job.id, attempt=job.attempt)]
    why = job.stop_why
    if why is StopReason.CANCELLED:
        return [JobCancelled(job=job.id)]
    # What comes to its end because it was told to stop tells nothing of its node.
    avoid = job.avoid if job.status is JobStatus.STOPPING else avoided(job, failed_on(runs), now_ms)
    if why is None or why is StopReason.WORKER_FAILED:
        if RunStatus.FAILED in runs.values():
            return [after_failure(job, now_ms, job.stop_text or text or "a worker failed", avoid)]
        return [after_loss(job, now_ms, avoid, fault if why is None else None)]
    if why is StopReason.RUN_TIME_LIMIT:
        return [JobFailed(job=job.id, reason=FailReason.RUN_TIME_LIMIT, text="ran longer than max_run_ms")]
    if why is StopReason.START_TIMED_OUT:
        return [after_start_timeout(job, now_ms, avoid)]
    if why is StopReason.DRAINED:
        return [at_once(job, now_ms, RequeueReason.DRAINED)]
    if why in _INFRASTRUCTURE:
        return [after_loss(job, now_ms, avoid, job.stop_text if why is StopReason.DEVICE_FAILED else None)]
    return [
        JobPreempted(job=job.id, attempt=job.attempt, why=why, for_whom=job.stop_for),
        at_once(job, now_ms, RequeueReason.PREEMPTED),
    ]


def failed_on(runs: Mapping[str, RunStatus]) -> list[str]:
    """The nodes on which a gang's attempt went wrong: where a worker failed, or else where the run was lost."""
    failed = [node for node, status in runs.items() if status is RunStatus.FAILED]
    return failed or [node for node, status in runs.items() if status is RunStatus.STOPPED]
