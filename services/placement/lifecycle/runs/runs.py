"""What placement does with what nodes say of their runs."""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder, end_by_node, first_words, run_end
from fallow.services.placement.lifecycle.runs import workers
from fallow.services.placement.lifecycle.runs.outcome import failed_on, outcome_of
from fallow.services.placement.lifecycle.runs.retry import avoided
from fallow.services.placement.requests.requests import stopping
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RUN_IS_OVER, NodeStatus, ObservedRun, RunStatus
from fallow.shared.events.nodes import (
    NodeEvent,
    RunEvent,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStatusUpdate,
    RunStopped,
)
from fallow.shared.events.reasons import StopReason

_STATUS: dict[type[NodeEvent], RunStatus] = {
    RunStarted: RunStatus.RUNNING,
    RunFinished: RunStatus.FINISHED,
    RunStopped: RunStatus.STOPPED,
    RunFailed: RunStatus.FAILED,
}
_TOLD = frozenset(_STATUS.values())

_RANK = {status: 2 if status in RUN_IS_OVER else int(status is not RunStatus.STARTING) for status in RunStatus}
"""A run only gets on: starting, running, over."""

# To look up a member of an enumeration costs more than most of what is done with it here.
_RUNNING, _FINISHED, _FAILED = RunStatus.RUNNING, RunStatus.FINISHED, RunStatus.FAILED
_STARTING_JOB, _STOPPING_JOB = JobStatus.STARTING, JobStatus.STOPPING

_ENDS = frozenset({RunStatus.FINISHED, RunStatus.FAILED})
"""The ends that a run comes to by itself."""


def note_run(decision: DecisionBuilder, event: RunStarted | RunStopped | RunFinished | RunFailed) -> None:
    """Keep one run's news for the end of the turn. A failure that was the node's counts as a stop, not against the
    job.
    """
    status, job = _STATUS[type(event)], _current(decision, event.job, event.attempt)
    key = None if job is None else _key(job, event.node, event.rank, event.turn)
    if job is None or key is None:
        return
    if isinstance(event, RunFailed):
        status = _failure(decision, event, key)
    _note(decision, job, key, status)


def note_word(decision: DecisionBuilder, word: RunStatusUpdate) -> bool:
    """Take in one status of a run among others. Whether the log still wants this run on its node; if not, nothing
    follows.
    """
    job = decision.state.jobs.get(word.job)
    if job is None or job.attempt != word.attempt or job.status not in HOLDING:
        return False
    key: str | None = word.node
    if not job.spec.gang or key not in job.runs:  # most words are of gangs, and of runs that are there
        key = _key(job, word.node, word.rank, word.turn)
        if key is None:
            return False
    status = word.status
    if status is _FAILED:
        status = _failure(decision, word, key)
    if status in _TOLD:  # of a run that is about to start or to stop nothing follows
        _note(decision, job, key, status)
    return True


def _failure(decision: DecisionBuilder, word: RunFailed | RunStatusUpdate, key: str) -> RunStatus:
    said = decision.faults if word.infrastructure else decision.failures
    decision.keep_words(said, (word.job, word.attempt), key, word.text)
    return RunStatus.STOPPED if word.infrastructure else RunStatus.FAILED


def is_current(decision: DecisionBuilder, event: RunEvent) -> bool:
    """Whether the log still wants this run on its node."""
    job = _current(decision, event.job, event.attempt)
    return job is not None and _key(job, event.node, event.rank, event.turn) is not None


def _current(decision: DecisionBuilder, job_id: str, attempt: int) -> Job | None:
    job = decision.state.jobs.get(job_id)
    return None if job is None or job.attempt != attempt or job.status not in HOLDING else job


def _key(job: Job, node_id: str, rank: int | None, entered: int) -> str | None:
    """Under which name the state keeps this run of the job; None where it has no such one."""
    if not job.spec.gang:
        return workers.key_of(job, node_id, rank, entered)
    return node_id if node_id in job.runs else None


def note(
    decision: DecisionBuilder,
    job_id: str,
    attempt: int,
    node_id: str,
    status: RunStatus,
    worker: tuple[int | None, int] = (None, 0),
) -> None:
    """Keep that a run of the current attempt has reached this status; older news and other attempts are ignored.

    `worker` is (rank, turn) where each worker is a run of its own.
    """
    job = _current(decision, job_id, attempt)
    key = None if job is None else _key(job, node_id, *worker)
    if job is not None and key is not None:
        _note(decision, job, key, status)


def _note(decision: DecisionBuilder, job: Job, key: str, status: RunStatus) -> None:
    run = (job.spec.id, job.attempt)
    said, before = decision.runs.get(run), job.runs[key]
    if said is not None:
        before = said.get(key, before)
    if _RANK[status] > _RANK[before]:
        decision.record_status(run, said, key, status)


def _status(decision: DecisionBuilder, job: Job, key: str) -> RunStatus:
    said = decision.runs.get((job.id, job.attempt))
    return job.runs[key] if said is None else said.get(key, job.runs[key])


def is_wanted(decision: DecisionBuilder, node_id: str, run: ObservedRun) -> bool:
    """Whether the log wants this run on the node, and does not take it for over, with what was said in this turn."""
    job = decision.state.jobs.get(run.job)
    if job is None or job.attempt != run.attempt:
        return False
    key = _key(job, node_id, run.rank, run.turn)
    return key is not None and _status(decision, job, key) not in RUN_IS_OVER


def node_is_gone(decision: DecisionBuilder, node_id: str) -> bool:
    """Nothing runs on this node any more: its runs are over, by no fault of the jobs. Whether the record had room for
    all of them.
    """
    for job_id in sorted(decision.state.nodes[node_id].jobs):
        if decision.is_full:
            return False
        job = decision.state.jobs[job_id]
        if job.spec.gang:
            note(decision, job_id, job.attempt, node_id, RunStatus.STOPPED)
            continue
        for place in workers.on_node(job, node_id):
            note(decision, job_id, job.attempt, node_id, RunStatus.STOPPED, worker=(place.rank, place.turn))
    return True


def has_runs(state: CellState, node_id: str) -> bool:
    """Whether the log takes any run on this node for one that is not over."""
    for job_id in state.nodes[node_id].jobs:
        job = state.jobs[job_id]
        if not job.spec.gang:
            if workers.on_node(job, node_id):
                return True
        elif job.runs[node_id] not in RUN_IS_OVER:
            return True
    return False


def settle(decision: DecisionBuilder) -> None:
    """Turn the news of this turn into effects, job by job."""
    jobs = decision.state.jobs
    for (job_id, attempt), noted in decision.take_heard().items():
        job = jobs.get(job_id)
        if job is None or job.attempt != attempt or job.status not in HOLDING:
            continue
        if not job.spec.gang:
            workers.settle(decision, job, noted)
        elif len(job.runs) > 1 or not _settle_lone_run(decision, job, noted):
            _settle_job(decision, job, noted)


def _settle_lone_run(decision: DecisionBuilder, job: Job, noted: dict[str, RunStatus]) -> bool:
    """Whether the news is what nearly all news is: the only run of a job has started, or has ended well."""
    ((node, status),) = noted.items()
    if status is _FINISHED:
        if job.status is not _STOPPING_JOB:
            decision.ended.append(run_end(node, job, is_good=True))
        decision.emit(e.JobFinished(job=job.spec.id, attempt=job.attempt))
        return True
    if status is _RUNNING and job.status is _STARTING_JOB:
        decision.emit(e.JobRunning(job=job.spec.id, attempt=job.attempt))
        return True
    return False


def _settle_job(decision: DecisionBuilder, job: Job, noted: dict[str, RunStatus]) -> None:
    faults = decision.faults_among((job.id, job.attempt), noted)
    if job.status is not JobStatus.STOPPING:
        # What fails once its gang has failed elsewhere tells nothing of its node.
        decision.ended += [
            run_end(node, job, is_good=noted[node] is RunStatus.FINISHED) for node in noted if noted[node] in _ENDS
        ]
        decision.ended += [end_by_node(node, job) for node in noted if node in faults]
    runs = {**job.runs, **noted}
    if all(status in RUN_IS_OVER for status in runs.values()):
        for effect in outcome_of(job, runs, decision.now_ms, _failure_text(decision, job), first_words(faults)):
            decision.emit(effect)
        return
    is_up = job.status is JobStatus.STARTING and all(
        s in (RunStatus.RUNNING, RunStatus.FINISHED) for s in runs.values()
    )
    for node, status in noted.items():
        if not (is_up and status is RunStatus.RUNNING):
            decision.emit(e.RunObserved(job=job.id, attempt=job.attempt, node=node, status=status))
    if is_up:
        decision.emit(e.JobRunning(job=job.id, attempt=job.attempt))
    elif job.status is not JobStatus.STOPPING and any(
        s in (RunStatus.FAILED, RunStatus.STOPPED) for s in noted.values()
    ):
        decision.emit(_stopping_whole(decision, job, noted, faults))


def _stopping_whole(
    decision: DecisionBuilder, job: Job, noted: dict[str, RunStatus], faults: dict[str, str]
) -> e.JobStopping:
    """A gang that lost a part stops whole: because a worker failed, or because its node did. A node stops what it has
    by itself when its lease has run out, though the log may never take it for lost. The order tells what was said of
    the failure, or of the node's own fault: another writer may settle the end.
    """
    why, text = StopReason.NODE_LOST, ""
    if RunStatus.FAILED in noted.values():
        why, text = StopReason.WORKER_FAILED, _failure_text(decision, job)
    elif faults and not any(decision.state.nodes[node].status is NodeStatus.LOST for node in noted):
        why, text = StopReason.DEVICE_FAILED, first_words(faults) or ""
    avoid = avoided(job, failed_on(noted), decision.now_ms)
    return stopping(job, why, decision.state.policy.stop_grace_wall_ms, avoid=avoid, text=text)


def _failure_text(decision: DecisionBuilder, job: Job) -> str:
    """The first words about a failure of the job's own."""
    return first_words(decision.failures.get((job.id, job.attempt), {})) or ""
