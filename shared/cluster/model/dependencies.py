"""Jobs that wait for the ends of others: which job waits for which, and which wait has ended.

An end costs the same however many jobs wait for it: it is noted once, and each of these jobs is told by an effect of
its own. So no step is long, in the writer or in any reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.events.fields.values import AfterWhen

if TYPE_CHECKING:
    from fallow.shared.cluster.model.state import CellState


def is_live(state: CellState, job_id: str) -> bool:
    """Whether a job or an array of this id is not over."""
    return job_id in state.jobs or job_id in state.arrays


def is_known(state: CellState, waited: str) -> bool:
    """Whether what a job waits for has come, be it over by now."""
    return is_live(state, waited) or waited in state.ends_untold


def enter(state: CellState, job: Job) -> None:
    """A new job that names others. One that is remembered as over counts as it ended; an unknown one is waited
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
    """Note the jobs for which a job waits, and whether its wait has ended."""
    journal = state.undo_log
    for job_id in job.waits_for:
        if job_id not in state.dependents:
            journal.put(state.dependents, job_id, {})
            if job_id in state.finished:
                journal.put(state.ends_untold, job_id, None)
        journal.put(state.dependents[job_id], job.id, None)
    if job.broken_by or (job.status is JobStatus.AWAITING and not job.waits_for):
        journal.put(state.dependencies_resolved, job.id, None)


def drop_strangers(state: CellState, job_id: str, tenant: str) -> None:
    """A job, or an array, of this tenant is new: jobs of other tenants that have waited for its id before it was known
    whose it is, never get ready. Each of them ends by an effect of its own.
    """
    jobs, journal = state.jobs, state.undo_log
    followers = state.dependents.get(job_id, ())
    for follower in [each for each in followers if jobs[each].spec.tenant != tenant and not jobs[each].broken_by]:
        journal.set(jobs[follower], "broken_by", job_id)
        if follower not in state.dependencies_resolved:
            journal.put(state.dependencies_resolved, follower, None)


def end(state: CellState, job_id: str) -> None:
    """A job, or an array, is over and remembered. Those that wait for it are told one by one, each by an effect of its
    own: there may be very many. Until then it stays remembered.
    """
    if job_id in state.dependents:
        state.undo_log.put(state.ends_untold, job_id, None)


def ended(state: CellState, job: Job) -> tuple[str, ...]:
    """Those that the job waits for although they are over: it has not been told yet."""
    untold = state.ends_untold
    return tuple([waited for waited in job.waits_for if waited in untold]) if untold else ()


def breaker(state: CellState, job: Job) -> str:
    """Which job came to such an end that this one can never be ready; empty if none did."""
    if job.broken_by:
        return job.broken_by
    finished = state.finished
    failed = [waited for waited in ended(state, job) if finished[waited].status is not JobStatus.FINISHED]
    if not failed:
        return ""
    need_good_ends = {each.job for each in job.spec.after if each.when is AfterWhen.OK}
    return next((waited for waited in failed if waited in need_good_ends), "")


def is_ready(state: CellState, job: Job) -> bool:
    """Whether all that the job waits for is over as it should be, whether or not it has been told."""
    return len(ended(state, job)) == len(job.waits_for) and not breaker(state, job)


def leave(state: CellState, job: Job) -> None:
    """A job waits for no other job any more: it is ready, or over."""
    if job.waits_for:
        shorten(state, job, job.waits_for)
    forget_ripe(state, job)


def shorten(state: CellState, job: Job, over: tuple[str, ...]) -> None:
    """A job does not wait for these any more."""
    journal, gone = state.undo_log, frozenset(over)
    for job_id in over:
        followers = state.dependents[job_id]
        journal.drop(followers, job.id)
        if not followers:
            journal.forget(state.dependents, job_id)
            if job_id in state.ends_untold:
                journal.drop(state.ends_untold, job_id)
    journal.set(job, "waits_for", tuple([waited for waited in job.waits_for if waited not in gone]))


def forget_ripe(state: CellState, job: Job) -> None:
    """That the job's wait has ended has been said, or is to be looked at later."""
    if job.id in state.dependencies_resolved:
        state.undo_log.drop(state.dependencies_resolved, job.id)
