"""What placement does with what nodes say of their runs."""

from __future__ import annotations

from services.placement.policy.outcome import outcome_of
from services.placement.policy.requests import stopping
from services.placement.policy.turn import RunEnd, Turn
from shared.cluster.job import HOLDING, Job, JobStatus
from shared.events import effects as e
from shared.events.nodes import NodeEvent, RunEvent, RunFailed, RunFinished, RunStarted, RunStopped, RunWord
from shared.events.reasons import StopReason
from shared.events.values import RUN_IS_OVER, NodeStatus, RunStatus

_STATUS: dict[type[NodeEvent], RunStatus] = {
    RunStarted: RunStatus.RUNNING,
    RunFinished: RunStatus.FINISHED,
    RunStopped: RunStatus.STOPPED,
    RunFailed: RunStatus.FAILED,
}
_TOLD = frozenset(_STATUS.values())

_RANK = {status: 2 if status in RUN_IS_OVER else int(status is not RunStatus.STARTING) for status in RunStatus}
"""A run only gets on: starting, running, over."""

_ENDS = {RunStatus.FINISHED: True, RunStatus.FAILED: False}
"""The ends that a run comes to by itself, and whether they are good."""


def note_run(turn: Turn, event: RunEvent) -> None:
    """Keep one run's news for the end of the turn. A failure that was the node's counts as a stop, not against the
    job.
    """
    status = _STATUS.get(type(event))
    if status is None:
        return
    if isinstance(event, RunFailed):
        status = _failure(turn, event)
    note(turn, event.job, event.attempt, event.node, status)


def note_word(turn: Turn, word: RunWord) -> bool:
    """The same for a word among others. Whether the log still wants this run on its node; if not, nothing follows."""
    job = _current(turn, word.job, word.attempt, word.node)
    if job is None:
        return False
    status = word.status
    if status is RunStatus.FAILED:
        status = _failure(turn, word)
    if status in _TOLD:  # of a run that is about to start or to stop nothing follows
        _note(turn, job, word.node, status)
    return True


def _failure(turn: Turn, word: RunFailed | RunWord) -> RunStatus:
    turn.hear_words(word.job, word.attempt, word.text)
    return RunStatus.STOPPED if word.infrastructure else RunStatus.FAILED


def is_current(turn: Turn, job_id: str, attempt: int, node_id: str) -> bool:
    """Whether the log still wants this run on its node."""
    return _current(turn, job_id, attempt, node_id) is not None


def _current(turn: Turn, job_id: str, attempt: int, node_id: str) -> Job | None:
    job = turn.state.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.status not in HOLDING or node_id not in job.runs:
        return None
    return job


def note(turn: Turn, job_id: str, attempt: int, node_id: str, status: RunStatus) -> None:
    """Keep that a run of the current attempt has reached this status; older news and other attempts are ignored."""
    job = _current(turn, job_id, attempt, node_id)
    if job is not None:
        _note(turn, job, node_id, status)


def _note(turn: Turn, job: Job, node_id: str, status: RunStatus) -> None:
    if _RANK[status] > _RANK[run_status(turn, job, node_id)]:
        turn.hear(job.id, job.attempt, node_id, status)


def run_status(turn: Turn, job: Job, node_id: str) -> RunStatus:
    """The newest status of a job's run on a node, with what was said in this turn."""
    said = turn.runs.get((job.id, job.attempt))
    return job.runs[node_id] if said is None else said.get(node_id, job.runs[node_id])


def node_is_gone(turn: Turn, node_id: str) -> None:
    """Nothing runs on this node any more: its runs are over, by no fault of the jobs."""
    for job_id in sorted(turn.state.nodes[node_id].jobs):
        note(turn, job_id, turn.state.jobs[job_id].attempt, node_id, RunStatus.STOPPED)


def settle(turn: Turn) -> None:
    """Turn the news of this turn into effects, job by job."""
    for (job_id, attempt), noted in turn.take_heard().items():
        job = turn.state.jobs.get(job_id)
        if job is None or job.attempt != attempt or job.status not in HOLDING:
            continue
        if len(job.runs) > 1 or not _settle_lone_run(turn, job, noted):
            _settle_job(turn, job, noted)


def _settle_lone_run(turn: Turn, job: Job, noted: dict[str, RunStatus]) -> bool:
    """Whether the news is what nearly all news is: the only run of a job has started, or has ended well."""
    ((node, status),) = noted.items()
    if status is RunStatus.FINISHED:
        if job.status is not JobStatus.STOPPING:
            turn.ended.append(RunEnd(node, job.id, is_good=True))
        turn.do(e.JobFinished(job=job.id, attempt=job.attempt))
        return True
    if status is RunStatus.RUNNING and job.status is JobStatus.STARTING:
        turn.do(e.JobRunning(job=job.id, attempt=job.attempt))
        return True
    return False


def _settle_job(turn: Turn, job: Job, noted: dict[str, RunStatus]) -> None:
    if job.status is not JobStatus.STOPPING:
        # What fails once its gang has failed elsewhere tells nothing of its node.
        turn.ended += [RunEnd(node, job.id, _ENDS[status]) for node, status in noted.items() if status in _ENDS]
    runs = {**job.runs, **noted}
    if all(status in RUN_IS_OVER for status in runs.values()):
        for effect in outcome_of(job, runs, turn.now_ms, turn.words.get((job.id, job.attempt), "")):
            turn.do(effect)
        return
    is_up = job.status is JobStatus.STARTING and all(
        s in (RunStatus.RUNNING, RunStatus.FINISHED) for s in runs.values()
    )
    for node, status in noted.items():
        if not (is_up and status is RunStatus.RUNNING):
            turn.do(e.RunObserved(job=job.id, attempt=job.attempt, node=node, status=status))
    if is_up:
        turn.do(e.JobRunning(job=job.id, attempt=job.attempt))
    elif job.status is not JobStatus.STOPPING and any(
        s in (RunStatus.FAILED, RunStatus.STOPPED) for s in noted.values()
    ):
        turn.do(stopping(job, _why(turn, noted), turn.state.policy.stop_grace_wall_ms))


def _why(turn: Turn, noted: dict[str, RunStatus]) -> StopReason:
    """A gang that lost a part stops whole: because a worker failed, or because its node did."""
    if RunStatus.FAILED in noted.values():
        return StopReason.WORKER_FAILED
    lost = any(turn.state.nodes[node].status is NodeStatus.LOST for node in noted)
    return StopReason.NODE_LOST if lost else StopReason.DEVICE_FAILED
