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


def note_word(turn: Turn, word: RunWord) -> None:
    """The same for a word among others. Of a run that is about to start or to stop nothing follows."""
    status = word.status
    if status not in _TOLD:
        return
    if status is RunStatus.FAILED:
        status = _failure(turn, word)
    note(turn, word.job, word.attempt, word.node, status)


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
    if job is not None and _rank(status) > _rank(run_status(turn, job, node_id)):
        turn.hear(job_id, attempt, node_id, status)


def run_status(turn: Turn, job: Job, node_id: str) -> RunStatus:
    """The newest status of a job's run on a node, with what was said in this turn."""
    said = turn.runs.get((job.id, job.attempt))
    return job.runs[node_id] if said is None else said.get(node_id, job.runs[node_id])


def _rank(status: RunStatus) -> int:
    """A run only gets on: starting, running, over."""
    if status in RUN_IS_OVER:
        return 2
    return 0 if status is RunStatus.STARTING else 1


def node_is_gone(turn: Turn, node_id: str) -> None:
    """Nothing runs on this node any more: its runs are over, by no fault of the jobs."""
    for job_id in sorted(turn.state.nodes[node_id].jobs):
        note(turn, job_id, turn.state.jobs[job_id].attempt, node_id, RunStatus.STOPPED)


def settle(turn: Turn) -> None:
    """Turn the news of this turn into effects, job by job."""
    for (job_id, attempt), noted in turn.take_heard().items():
        job = turn.state.jobs.get(job_id)
        if job is not None and job.attempt == attempt and job.status in HOLDING:
            _settle_job(turn, job, noted)


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
