"""What placement does with what admission passed on: a new job, a cancel, an update."""

from __future__ import annotations

from collections.abc import Iterable

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.requests import arrays, dependencies
from fallow.shared.cluster.model.arrays import ArrayJob, elements_of
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.file_in_force import queue_in_force
from fallow.shared.cluster.model.independent_workers import is_service
from fallow.shared.cluster.model.job import WAITING, Job, JobStatus
from fallow.shared.cluster.model.spec_bytes import spec_bytes
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.waiting_limits import WaitingLimits
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import AdmittedJob, JobAdmitted, JobCancelRequested, JobUpdateRequested
from fallow.shared.events.reasons import RefuseCode, StopReason

_SELDOM_REFUSED = frozenset(("priority", "max_run_ms"))

CLOCKS_APART_MS = 30_000
"""So far apart the clocks of two brokers may be: a request and the submission of its job may have been stamped by both.
"""


def enqueue(
    decision: DecisionBuilder, event: JobAdmitted | AdmittedJob, size_bytes: int, limits: WaitingLimits
) -> None:
    """Accept the job, unless its id was used before: for the same content that is the earlier answer, for another a
    refusal. So is one for a submission from a time of which the cell has forgotten jobs: it may have run already. And
    so are jobs beyond the `limits` of those that wait, and of what live ones take.
    """
    state, spec = decision.state, event.spec
    known = state.jobs.get(spec.id) or state.finished.get(spec.id) or state.arrays.get(spec.id)
    if known is not None:
        if known.digest != event.digest:
            decision.emit(_refused(spec.id, "submit", RefuseCode.ID_USED_BEFORE, spec.tenant, "with other content"))
        return
    if event.sent_ms is not None and event.sent_ms <= state.finished.forgotten_ms:
        text = f"sent at {event.sent_ms}, jobs that were sent up to {state.finished.forgotten_ms} are forgotten"
        decision.emit(_refused(spec.id, "submit", RefuseCode.SUBMISSION_TOO_OLD, spec.tenant, text))
        return
    refusal = _refusal(decision, spec, limits)
    if refusal is not None:
        decision.emit(_refused(spec.id, "submit", refusal[0], spec.tenant, refusal[1]))
        return
    if spec.array is None:
        _enter(decision, event, spec, size_bytes)
    else:
        for element in arrays.elements(spec):
            _enter(decision, event, element, size_bytes // spec.array)


def _refusal(decision: DecisionBuilder, spec: JobSpec, limits: WaitingLimits) -> tuple[RefuseCode, str] | None:
    """Why a new job, or a whole array, cannot be accepted."""
    state, jobs = decision.state, spec.array or 1
    text_bytes = jobs * spec_bytes(spec)
    if not limits.have_room(state, spec.tenant, jobs, text_bytes):
        return _too_many_waiting(state, spec, limits) or _too_many_bytes(state, spec, limits, text_bytes)
    used = None if spec.array is None else arrays.id_in_use(state, spec)
    if used is not None:
        return RefuseCode.ID_USED_BEFORE, f"by job {used}"
    return dependencies.refusal(decision, spec, arrays.ids(spec)) if spec.after else None


def _too_many_waiting(state: CellState, spec: JobSpec, limits: WaitingLimits) -> tuple[RefuseCode, str] | None:
    """Why no more jobs may wait, in the cell or of this tenant. An array counts as its elements."""
    jobs, cell_max = spec.array or 1, state.policy.max_pending_jobs
    of = "" if spec.array is None else f" and this array has {jobs}"
    if state.waiting + jobs > cell_max:
        return RefuseCode.TOO_MANY_WAITING, f"{state.waiting} jobs wait{of}, the cell takes {cell_max}"
    waiting, most = state.waiting_of.get(spec.tenant, 0), limits.of(spec.tenant, cell_max)
    if waiting + jobs > most:
        text = f"tenant {spec.tenant} has {waiting} waiting jobs{of}; its limit is {most}"
        return RefuseCode.TENANT_HAS_TOO_MANY_WAITING, text
    return None


def _too_many_bytes(state: CellState, spec: JobSpec, limits: WaitingLimits, new: int) -> tuple[RefuseCode, str] | None:
    """Why texts of `new` bytes more may not be kept, of the cell or of this tenant. Those of jobs that run are kept,
    too, so they count.
    """
    cell_max = state.policy.live_bytes_max
    of = f"this one takes {new}" if spec.array is None else f"the {spec.array} of this array take {new}"
    if state.live_bytes + new > cell_max:
        text = f"the jobs that wait or run take {state.live_bytes} bytes and {of}, the cell takes {cell_max}"
        return RefuseCode.TOO_MANY_WAITING, text
    held, most = state.live_bytes_of.get(spec.tenant, 0), limits.bytes_of(spec.tenant, cell_max)
    if held + new > most:
        text = f"the jobs of tenant {spec.tenant} that wait or run take {held} bytes and {of}; its limit is {most}"
        return RefuseCode.TENANT_HAS_TOO_MANY_WAITING, text
    return None


def _enter(decision: DecisionBuilder, event: JobAdmitted | AdmittedJob, spec: JobSpec, size_bytes: int) -> None:
    submit_ms, sent_ms = _times(decision, event)
    effect = e.JobEnqueued(spec=spec, submit_ms=submit_ms, digest=event.digest, sent_ms=sent_ms)
    decision.enqueue(effect, size_bytes, is_read=spec is event.spec)
    if spec.after or spec.not_before_ms is not None:
        dependencies.begin(decision, decision.state.jobs[spec.id])
    if spec.hold:
        decision.emit(e.JobHeld(job=spec.id))


def _times(decision: DecisionBuilder, event: JobAdmitted | AdmittedJob) -> tuple[int, int | None]:
    """Since when the job waits, and when it was sent if that is another time: neither is later than now.

    A broker whose clock is ahead for a moment stamps what is still to come. By such a stamp the job would wait behind
    all that come until then, each request would be older than the job, and once it is forgotten so would every
    submission be. Where cell time goes by steps nothing is stamped.
    """
    if event.sent_ms is None:
        return event.submit_ms, None
    submit_ms, sent_ms = min(event.submit_ms, decision.now_ms), min(event.sent_ms, decision.now_ms)
    return submit_ms, None if sent_ms == submit_ms else sent_ms


def cancel(decision: DecisionBuilder, event: JobCancelRequested) -> None:
    """End a waiting job at once, let a running one stop; a job that is cancelled already needs nothing more."""
    for job in _own_jobs(decision, event, "cancel"):
        if job.status in WAITING:
            decision.emit(e.JobCancelled(job=job.id))
        elif job.status is not JobStatus.STOPPING or job.stop_why is not StopReason.CANCELLED:
            decision.emit(stopping(job, StopReason.CANCELLED, decision.state.policy.stop_grace_wall_ms, event.tenant))


def stopping(
    job: Job,
    why: StopReason,
    grace_wall_ms: int,
    for_whom: str = "",
    avoid: tuple[str, ...] | None = None,
    text: str = "",
) -> e.JobStopping:
    """The order to stop a job's current attempt. `avoid` are the nodes of its last failures, if there are more now.
    `text` tells of the failure that is why.
    """
    return e.JobStopping(
        job=job.id,
        attempt=job.attempt,
        why=why,
        for_whom=for_whom,
        grace_wall_ms=grace_wall_ms,
        avoid=job.avoid if avoid is None else avoid,
        text=text,
    )


def update(decision: DecisionBuilder, event: JobUpdateRequested, following: Iterable[Event | None] = ()) -> None:
    """Change priority and run-time limit, and how many replicas a service has; no other job's number of workers.

    The first job, or element of an array, tells the answer in any case, of the others only those that change, and each
    refusal once: else a few bytes would fill the log. Where an update among those `following` supersedes this one, that
    one changes the others.
    """
    jobs = _own_jobs(decision, event, "update")
    if not jobs:
        return
    queue = queue_in_force(decision.state.cell_file, event.cell, jobs[0].spec.queue or "")  # elements have one queue
    if len(jobs) > 1 and any(_supersedes(later, event, queue) for later in following):
        del jobs[1:]
    is_told, refusals = False, set[str]()
    for job in jobs:
        effect = _updated(event, job, queue)
        if isinstance(effect, e.JobRefused):
            is_new = effect.text not in refusals
            refusals.add(effect.text)
        else:
            is_new = not is_told or effect != e.JobUpdated.of(job.spec)
            is_told = True
        if is_new:
            decision.emit(effect)


def _supersedes(later: Event | None, earlier: JobUpdateRequested, queue: Queue) -> bool:
    """Whether nothing of the earlier update is left after the later one, which is not refused where that is not."""
    if not isinstance(later, JobUpdateRequested):
        return False
    if (later.cell, later.job, later.tenant) != (earlier.cell, earlier.job, earlier.tenant):
        return False
    before, after = _named(earlier), _named(later)
    return before <= after <= _SELDOM_REFUSED and not queue.over_max_run(later.changes.max_run_ms)


def _named(event: JobUpdateRequested) -> frozenset[str]:
    return frozenset(name for name in e.UPDATABLE if getattr(event.changes, name) is not None)


def _updated(event: JobUpdateRequested, job: Job, queue: Queue) -> e.JobUpdated | e.JobRefused:
    changes = event.changes
    if (changes.workers is not None or changes.workers_min is not None) and (job.spec.gang or not is_service(job)):
        text = f"{'a gang keeps' if job.spec.gang else 'only a service can change'} its number of workers"
        return _refused(job.id, "update", RefuseCode.UNSUPPORTED, event.tenant, text)
    wanted = {name: value for name in e.UPDATABLE if (value := getattr(changes, name)) is not None}
    fewest, most = (wanted.get(name, getattr(job.spec, name)) for name in ("workers_min", "workers"))
    if fewest is not None and fewest > most:
        text = f"workers_min {fewest} is above workers {most}"
        return _refused(job.id, "update", RefuseCode.WRONG_STATE, event.tenant, text)
    if rule := queue.over_max_run(changes.max_run_ms):
        text = f"max_run_ms {changes.max_run_ms}: {rule}"
        return _refused(job.id, "update", RefuseCode.WRONG_STATE, event.tenant, text)
    return e.JobUpdated.of(replace(job.spec, **wanted))


def too_old(sent_ms: int | None, known: Job | ArrayJob | None) -> str:
    """Why a request is not meant for this job: it was sent before the job was, by more than clocks may be apart. Empty
    where it is.
    """
    if sent_ms is None or known is None or sent_ms >= known.came_ms - CLOCKS_APART_MS:
        return ""
    return f"sent at {sent_ms}, the job of this id was sent at {known.came_ms}"


def _own_jobs(decision: DecisionBuilder, event: JobCancelRequested | JobUpdateRequested, request: str) -> list[Job]:
    """The tenant's live job, or the live elements of its array; none after a refusal, or where the request is fulfilled
    already.
    """
    job_id, tenant, array = event.job, event.tenant, decision.state.arrays.get(event.job)
    known = array or decision.state.jobs.get(job_id)
    owner = None if known is None else known.tenant if isinstance(known, ArrayJob) else known.spec.tenant
    if owner == tenant and (why := too_old(event.sent_ms, known)):
        decision.emit(_refused(job_id, request, RefuseCode.REQUEST_TOO_OLD, tenant, why))
        return []
    if array is None:
        job = _own_job(decision, job_id, tenant, request)
        return [] if job is None else [job]
    if array.tenant != tenant:
        decision.emit(_refused(job_id, request, RefuseCode.NOT_THE_TENANTS_JOB, tenant, ""))
        return []
    decision.steps += array.elements
    return list(elements_of(decision.state, array))


def _own_job(decision: DecisionBuilder, job_id: str, tenant: str, request: str) -> Job | None:
    job, over = decision.state.jobs.get(job_id), decision.state.finished.get(job_id)
    owner = job.spec.tenant if job is not None else over.tenant if over is not None else None
    if owner is None:
        decision.emit(_refused(job_id, request, RefuseCode.UNKNOWN_JOB, tenant, ""))
    elif owner != tenant:
        decision.emit(_refused(job_id, request, RefuseCode.NOT_THE_TENANTS_JOB, tenant, ""))
    elif over is not None and not (request == "cancel" and over.status is JobStatus.CANCELLED):
        decision.emit(_refused(job_id, request, RefuseCode.ALREADY_OVER, tenant, f"it is {over.status}"))
    return job if owner == tenant else None


def _refused(job_id: str, request: str, code: RefuseCode, tenant: str, text: str) -> e.JobRefused:
    return e.JobRefused(job=job_id, request=request, code=code, tenant=tenant, text=text)
