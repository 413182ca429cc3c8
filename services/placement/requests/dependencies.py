"""Jobs that wait for others: which of them may wait for their turn now, and which never will."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge, nsmallest
from itertools import chain
from operator import attrgetter

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests.circles import STEPS_MAX, circle
from fallow.shared.cluster.model.dependencies import breaker, ended, is_known, is_ready
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import CancelReason, PendingReason, RefuseCode

SETTLED_MAX = 2_000
"""So many waits end in one record at most, the others in the next ones. Each job counts as one more."""

_NUMBER = attrgetter("number")


def refusal(decision: DecisionBuilder, spec: JobSpec, ids: tuple[str, ...]) -> tuple[RefuseCode, str] | None:
    """Why a job, whose ids these are, cannot wait for what it names; None if it can.

    It may name an unknown job: of two jobs that are sent together either may come first. So two could wait for
    each other, and then the later one is refused.
    """
    for dependency in spec.after:
        owner = _owner(decision.state, dependency.job)
        if owner is not None and owner != spec.tenant:
            return RefuseCode.NOT_THE_TENANTS_JOB, f"it would wait for {dependency.job}"
    found = circle(decision.state, spec, ids)
    decision.steps += found.steps + sum(1 + len(decision.state.dependents.get(job_id, ())) for job_id in ids)
    if found.job is not None:
        return RefuseCode.AFTER_ITSELF, f"{found.job} waits for it already"
    if found.is_cut:
        text = f"{STEPS_MAX} waits before it and {STEPS_MAX} behind it do not tell whether it would wait for itself"
        return RefuseCode.AFTER_TOO_MANY, text
    return None


def _owner(state: CellState, job_id: str) -> str | None:
    job = state.jobs.get(job_id)
    if job is not None:
        return job.spec.tenant
    known = state.arrays.get(job_id) or state.finished.get(job_id)
    return None if known is None else known.tenant


def begin(decision: DecisionBuilder, job: Job) -> None:
    """Say why a new job waits, if that is not for room."""
    if job.status is JobStatus.AWAITING:
        decision.emit(e.JobDeferred(job=job.id, code=PendingReason.AFTER))
    elif job.not_before_ms > decision.now_ms:
        decision.emit(e.JobDeferred(job=job.id, code=PendingReason.NOT_BEFORE))


def settle(decision: DecisionBuilder) -> None:
    """Let go on whose wait is over, and end those for which it can never be. Their ends may end others' waits.
    The walk waits for those that come to be ready together.
    """
    state, left = decision.state, SETTLED_MAX
    while state.has_waits_to_settle and left > 0:
        for job in _to_settle(state, left):
            if decision.is_full:
                return
            left -= _waits_of(state, job)
            _settle(decision, job)


def _to_settle(state: CellState, most: int) -> list[Job]:
    """Jobs whose wait has ended, of so many waits: those of each tenant in the order in which they came into the cell,
    and tenants in turn, so that none waits for another's.
    """
    found: dict[str, Job] = {}
    for job in _in_turn(_of_tenants(state, most)):
        if most <= 0:
            break
        if job.id not in found:
            found[job.id] = job
            most -= _waits_of(state, job)
    return list(found.values())


def _of_tenants(state: CellState, most: int) -> list[Iterator[Job]]:
    """These jobs, or more, of each tenant, in the order of their numbers, in which also those stand that wait for an
    end.
    """
    jobs, resolved, told = state.jobs.__getitem__, dict[str, list[Job]](), dict[str, list[Iterable[Job]]]()
    for job in map(jobs, state.dependencies_resolved):
        resolved.setdefault(job.spec.tenant, []).append(job)
    for waited in state.ends_untold:
        told.setdefault(state.finished[waited].tenant, []).append(map(jobs, state.dependents[waited]))
    return [
        merge(nsmallest(most, resolved.get(tenant, ()), key=_NUMBER), *told.get(tenant, ()), key=_NUMBER)
        for tenant in resolved | told
    ]


def _in_turn(lines: list[Iterator[Job]]) -> Iterator[Job]:
    """The first one of each line, the line first whose first job came first; then the second ones, and so on."""
    firsts = sorted(((next(line), line) for line in lines), key=lambda each: each[0].number)
    open_lines: list[Iterator[Job]] = [chain((first,), line) for first, line in firsts]
    while open_lines:
        left: list[Iterator[Job]] = []
        for line in open_lines:
            job = next(line, None)
            if job is not None:
                left.append(line)
                yield job
        open_lines = left


def _waits_of(state: CellState, job: Job) -> int:
    return 1 + len(ended(state, job))


def _settle(decision: DecisionBuilder, job: Job) -> None:
    state = decision.state
    broken_by = breaker(state, job)
    if broken_by:
        # Of another tenant's job nothing is told, not even how it ended.
        is_own = _owner(state, broken_by) in (None, job.spec.tenant)
        reason = CancelReason.DEPENDENCY_FAILED if is_own else CancelReason.DEPENDENCY_UNKNOWN
        decision.emit(_cancelled(job.id, reason, broken_by))
        return
    if job.status is JobStatus.HELD or not is_ready(state, job):
        decision.emit(e.WaitShortened(job=job.id, over=ended(state, job)))
        return
    decision.emit(e.JobReady(job=job.id))
    if job.not_before_ms > decision.now_ms:
        decision.emit(e.JobDeferred(job=job.id, code=PendingReason.NOT_BEFORE))


def give_up(decision: DecisionBuilder, job: Job) -> None:
    """The job has waited long enough for one that is unknown."""
    for waited in job.waits_for:
        if not is_known(decision.state, waited):
            decision.emit(_cancelled(job.id, CancelReason.DEPENDENCY_UNKNOWN, waited))
            return


def waits_for_unknown(state: CellState, job: Job) -> bool:
    """Whether one of those that it waits for has not come yet."""
    return any(not is_known(state, waited) for waited in job.waits_for)


def _cancelled(job_id: str, reason: CancelReason, because_of: str) -> e.JobCancelled:
    return e.JobCancelled(job=job_id, reason=reason, because_of=because_of)
