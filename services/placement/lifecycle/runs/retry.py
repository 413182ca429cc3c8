"""When a failed job is tried again, on which nodes rather not, and when no more."""

from __future__ import annotations

from collections.abc import Collection

from fallow.shared.cluster.model.independent_workers import is_service
from fallow.shared.cluster.model.job import Job, index_of
from fallow.shared.events.base import TEXT_CHARACTERS_MAX, later
from fallow.shared.events.effects import AVOIDED_MAX, JobFailed, JobRequeued
from fallow.shared.events.reasons import FailReason, RequeueReason

RUNS_WELL_MS = 3_600_000
"""A job that ran for so long begins to count its losses anew, and forgets the nodes of its earlier failures."""

LOSSES_MAX = 1_000

FAULTS_MAX = 50
"""After so many losses in a row, eight minutes at least, one that is a fault which its node names as its own ends the
job: nodes fail it wherever it begins, and a person has to read why. Other losses end none, however many there are.
"""

ENDLESS_FIRST_MS, ENDLESS_MAX_MS = 1_000, 10_000
"""Where no budget ends the attempts, the pause is as long at least as one that doubles from the first of these to the
second, whatever the job asks for: what ends as soon as it starts would fill the log.
"""


def backoff_ms(job: Job, failures: int) -> int:
    """The pause before the next attempt: it doubles with each failure, up to the job's own maximum."""
    retry = job.spec.retry
    return min(retry.backoff_ms << min(max(failures - 1, 0), 40), retry.backoff_max_ms)


def endless_backoff_ms(job: Job, times: int) -> int:
    """The backoff where no budget ends the attempts."""
    return max(backoff_ms(job, times), min(ENDLESS_FIRST_MS << min(max(times - 1, 0), 40), ENDLESS_MAX_MS))


def failure_pause_ms(job: Job, failures: int) -> int:
    """The pause before another worker takes the rank of one that has failed. No budget ends a service."""
    return endless_backoff_ms(job, failures) if is_service(job) else backoff_ms(job, failures)


def loss_pause_ms(job: Job, losses: int) -> int:
    """The pause after so many losses in a row: the first time the job is back at once. When it is lost again and again,
    each further attempt waits longer, so that it does not go down with the same nodes each time.
    """
    return endless_backoff_ms(job, losses - 1) if losses > 1 else 0


def has_run_well(job: Job, now_ms: int) -> bool:
    """Whether the job has run for long since its last failure or loss."""
    return job.running_ms is not None and now_ms - max(job.running_ms, job.not_before_ms) >= RUNS_WELL_MS


def losses_after(job: Job, now_ms: int) -> int:
    """How often in a row a gang is lost with this time."""
    return 1 if has_run_well(job, now_ms) else min(job.losses + 1, LOSSES_MAX)


def avoided(job: Job, failed_on: Collection[str], now_ms: int) -> tuple[str, ...]:
    """The nodes of the job's last failures, the newest last, when it has failed on these, too. They are in the order of
    their workers, so which ones are left out does not depend on names.
    """
    before = () if has_run_well(job, now_ms) else job.avoid
    if job.spec.gang:
        places = job.workers + job.joining
        fresh = dict.fromkeys(place.node for place in places if place.node in failed_on)
    else:
        fresh = dict.fromkeys(index_of(job).in_order(failed_on))
    return (*(node for node in before if node not in fresh), *fresh)[-AVOIDED_MAX:]


def after_failure(job: Job, now_ms: int, text: str, avoid: tuple[str, ...]) -> JobRequeued | JobFailed:
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
        avoid=avoid,
    )


def after_start_timeout(job: Job, now_ms: int, avoid: tuple[str, ...]) -> JobRequeued:
    """A gang that did not come up: not the job's fault, so nothing counts, but each further attempt waits longer."""
    not_before_ms = later(now_ms, backoff_ms(job, job.attempt))
    return JobRequeued(
        job=job.id,
        reason=RequeueReason.START_TIMED_OUT,
        not_before_ms=not_before_ms,
        failures=job.failures,
        losses=job.losses,
        avoid=avoid,
    )


def after_loss(job: Job, now_ms: int, avoid: tuple[str, ...], fault: str | None = None) -> JobRequeued | JobFailed:
    """A loss by infrastructure: nothing counts against the job, but losses in a row have an end where this one was a
    fault that the node named as its own, with these words; None: no node has named any.
    """
    losses = losses_after(job, now_ms)
    if fault is not None and losses > FAULTS_MAX:
        told = f"{losses} attempts in a row were lost, the last one{in_words(fault)}"
        return failed_by_nodes(job, told)
    return JobRequeued(
        job=job.id,
        reason=RequeueReason.INFRASTRUCTURE,
        not_before_ms=later(now_ms, loss_pause_ms(job, losses)),
        failures=job.failures,
        losses=losses,
        avoid=avoid,
    )


def in_words(fault: str) -> str:
    """How a sentence ends that tells of a loss by a node's own fault."""
    return f": {fault}" if fault else " by a fault of its node"


def failed_by_nodes(job: Job, told: str) -> JobFailed:
    """The end of a job that nodes failed by their own faults again and again."""
    return JobFailed(job=job.id, reason=FailReason.NODE_FAULTS, text=told[:TEXT_CHARACTERS_MAX])


def at_once(job: Job, now_ms: int, reason: RequeueReason) -> JobRequeued:
    """It ended for another job's sake: back in its old place, at once."""
    return JobRequeued(
        job=job.id,
        reason=reason,
        not_before_ms=now_ms,
        failures=job.failures,
        losses=job.losses,
        avoid=job.avoid,
    )
