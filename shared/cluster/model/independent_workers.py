"""Jobs that are no gangs: their workers come and go singly, each with a start and an end of its own.

Such a job holds a place for each worker that is on its way or runs. `runs` tells by rank how far each one is, `done`
keeps the ranks whose work is over for good, over all attempts.
"""

from __future__ import annotations

from fallow.shared.cluster.model.job import Job, JobStatus, worker_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, RunStatus, WorkerPlace

_ENTERS_INTO = (JobStatus.STARTING, JobStatus.RUNNING)


def fewest_of(job: Job) -> int:
    """With how many workers the job may start: one that is no gang with one at least, and with no more than have still
    to run.
    """
    spec = job.spec
    if spec.gang:
        return spec.workers_min or spec.workers
    return min(spec.workers_min or 1, spec.workers - len(job.done))


def lacking(job: Job) -> int:
    """How many workers a job that is no gang wants beside those that it has; below 0 it has more than it wants.

    One replica is as good as another, so another takes the place of one that leaves. A training job's worker that
    leaves keeps its rank until it has left: it may still come to a good end.
    """
    leaving = len(job.leaving) if is_service(job) else 0
    return job.spec.workers - len(job.done) - (len(job.workers) - leaving)


def paused_ranks(job: Job, now_ms: int) -> tuple[int, ...]:
    """The ranks that no worker may enter now: what failed there, or was lost again, waits. All others wait for
    nothing.
    """
    return tuple([setback.rank for setback in job.setbacks if setback.until_ms > now_ms]) if job.setbacks else ()


def may_enter(job: Job, now_ms: int) -> int:
    """How many of the workers that a job wants beside those that it has may enter now."""
    return lacking(job) - len(_pauses(job, now_ms))


def may_start_ms(job: Job, now_ms: int) -> int:
    """When so many ranks of a job without any worker have waited out their pauses that it can start with its fewest."""
    pauses = sorted(_pauses(job, now_ms))
    short = fewest_of(job) - (lacking(job) - len(pauses))
    return pauses[short - 1] if short > 0 else now_ms


def _pauses(job: Job, now_ms: int) -> list[int]:
    """Until when those of the lacking workers wait that may not enter yet."""
    if not job.setbacks:
        return []
    waiting = [setback for setback in job.setbacks if setback.until_ms > now_ms]
    if waiting and not is_service(job):  # a rank that has a worker, be it one that leaves, is none that lacks one
        waiting = [each for each in waiting if each.rank < job.spec.workers and worker_of(job, each.rank) is None]
    return [setback.until_ms for setback in waiting]


def next_pause_end_ms(job: Job, now_ms: int) -> int | None:
    """When the next pause of a job is over that waits or lacks workers; None if there is none. One that may start now
    goes on waiting with the ranks whose pauses are not over.
    """
    if not job.setbacks and job.not_before_ms <= now_ms:
        return None  # nearly every job
    ends = [setback.until_ms for setback in job.setbacks if setback.until_ms > now_ms]
    if job.status is JobStatus.QUEUED and job.not_before_ms > now_ms:
        ends.append(job.not_before_ms)
    return min(ends, default=None)


def may_go_on(job: Job, now_ms: int) -> bool:
    """Whether a job that waits may start now, or more workers may enter one that runs."""
    return job.not_before_ms <= now_ms if job.status is JobStatus.QUEUED else grows(job, now_ms)


def lacks(job: Job) -> bool:
    """Whether the job runs, or is about to, and wants more workers, now or after a pause."""
    return not job.spec.gang and job.status in _ENTERS_INTO and lacking(job) > 0


def grows(job: Job, now_ms: int) -> bool:
    """Whether the job runs, or is about to, and more workers may enter it now."""
    return lacks(job) and may_enter(job, now_ms) > 0


def is_service(job: Job) -> bool:
    """Whether its workers are replicas, of which one is as good as another and none ever has done its work."""
    return job.spec.kind is JobKind.INFERENCE


def starting(places: tuple[WorkerPlace, ...]) -> dict[str, RunStatus]:
    """What these workers are at first, by rank."""
    return {str(place.rank): RunStatus.STARTING for place in places}


def in_line(job: Job) -> JobSpec:
    """The job as its line knows it, by which its class is told: of one that is no gang only how many workers it needs
    at least decides whether it can go on.
    """
    if job.spec.gang:
        return job.spec
    fewest = fewest_of(job) if job.status is JobStatus.QUEUED else 1
    return replace(job.spec, workers=fewest, workers_min=fewest)
