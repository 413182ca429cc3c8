"""Jobs that wait for the ends of others: who waits for whom, and whose wait has ended.

An end costs as much as there are jobs that wait for it, and nothing where nobody waits for anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.shared.cluster.model.job import FINAL, Job, JobStatus
from fallow.shared.events.values import AfterWhen

if TYPE_CHECKING:
    from fallow.shared.cluster.model.state import CellState


def is_live(state: CellState, job_id: str) -> bool:
    """Whether a job or an array of this id is not over."""
    return job_id in state.jobs or job_id in state.arrays


def enter(state: CellState, job: Job) -> None:
    """A new job that names others. One that is remembered as over counts as it ended; one that nobody knows is waited
    for, since it may be on its way.
    """
    waits: dict[str, None] = {}
    for dependency in job.spec.after:
        over = None if is_live(state, dependency.job) else state.finished.get(dependency.job)
        if over is None:
            waits[dependency.job] = None
        elif dependency.when is AfterWhen.OK and over.status is not JobStatus.FINISHED and not job.broken_by:
            job.broken_by = dependency.job
    job.waits_for = tuple(waits)
    if waits or job.broken_by:
        job.status = JobStatus.AWAITING
    index(state, job)


def index(state: CellState, job: Job) -> None:
    """Note whom a job waits for, and whether its wait has ended."""
    journal = state.undo_log
    for job_id in job.waits_for:
        if job_id not in state.dependents:
            journal.put(state.dependents, job_id, {})
        journal.put(state.dependents[job_id], job.id, None)
    if job.broken_by or (job.status is JobStatus.AWAITING and not job.waits_for):
        journal.put(state.dependencies_resolved, job.id, None)


def drop_strangers(state: CellState, job_id: str, tenant: str) -> None:
    """A job, or an array, of this tenant is new: jobs of other tenants that have waited for its id before anybody knew
    whose it is never get ready. Each of them ends by an effect of its own.
    """
    followers, journal = state.dependents.get(job_id), state.undo_log
    for follower in sorted(followers or ()):
        job = state.jobs[follower]
        if job.spec.tenant != tenant and not job.broken_by:
            journal.set(job, "broken_by", job_id)
            if follower not in state.dependencies_resolved:
                journal.put(state.dependencies_resolved, follower, None)


def end(state: CellState, job_id: str, status: JobStatus) -> None:
    """A job, or an array, is over: tell those that wait for it."""
    assert status in FINAL, f"{job_id} ends as {status}"
    followers = state.dependents.get(job_id)
    if followers is None:
        return
    journal = state.undo_log
    journal.drop(state.dependents, job_id)
    for follower in sorted(followers):
        job = state.jobs[follower]
        journal.set(job, "waits_for", tuple([waited for waited in job.waits_for if waited != job_id]))
        if status is not JobStatus.FINISHED and not job.broken_by and _needs_a_good_end(job, job_id):
            journal.set(job, "broken_by", job_id)
        if follower not in state.dependencies_resolved and (
            job.broken_by or (not job.waits_for and job.status is JobStatus.AWAITING)
        ):
            journal.put(state.dependencies_resolved, follower, None)


def _needs_a_good_end(job: Job, job_id: str) -> bool:
    return any(each.job == job_id and each.when is AfterWhen.OK for each in job.spec.after)


def leave(state: CellState, job: Job) -> None:
    """A job waits for nobody any more: it is ready, or over."""
    journal = state.undo_log
    for job_id in job.waits_for:
        followers = state.dependents[job_id]
        journal.drop(followers, job.id)
        if not followers:
            journal.drop(state.dependents, job_id)
    if job.waits_for:
        journal.set(job, "waits_for", ())
    forget_ripe(state, job)


def forget_ripe(state: CellState, job: Job) -> None:
    """That the job's wait has ended has been said, or is to be looked at later."""
    if job.id in state.dependencies_resolved:
        state.undo_log.drop(state.dependencies_resolved, job.id)


def status_when_released(job: Job) -> JobStatus:
    """Where a held job goes when it is held no more."""
    return JobStatus.AWAITING if job.waits_for or job.broken_by else JobStatus.QUEUED
