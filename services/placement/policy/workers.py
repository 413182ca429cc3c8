"""What becomes of the workers of a job that is no gang, each by itself.

A training job is over when the work of each rank is done. A worker that fails is tried again alone, as long as the
job's retry budget lasts and after the pause that follows a failure; beyond the budget the whole job has failed.

A service's replicas have no work that would ever be done: one that ends, well or not, is replaced, after pauses that
grow with each failure and begin anew when nothing has failed for long. No budget ends a service.

Only what failed waits, or what was lost again after it had come back: all other workers enter at once meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.placement.policy.outcome import outcome_of
from services.placement.policy.requests import stopping
from services.placement.policy.retry import (
    ENDLESS_MOST_MS,
    avoided,
    backoff_ms,
    failure_pause_ms,
    loss_pause_ms,
    losses_after,
)
from services.placement.policy.turn import Turn, run_end
from shared.cluster.job import Job, JobStatus
from shared.cluster.singly import is_service
from shared.events import effects as e
from shared.events.base import later
from shared.events.reasons import FailReason, RequeueReason, StopReason
from shared.events.values import RUN_IS_OVER, RunStatus, WorkerPlace


def key_of(job: Job, node_id: str, rank: int | None, turn: int) -> str | None:
    """Under which name the state keeps the run of this worker on this node; None where the job has no such one."""
    place = None if rank is None else _of_rank(job, rank)
    return None if place is None or place.node != node_id or place.turn != turn else str(rank)


def _of_rank(job: Job, rank: int) -> WorkerPlace | None:
    """The worker of this rank. Mostly it stands at its own place: a job may have thousands, each of which speaks."""
    workers = job.workers
    if rank < len(workers) and workers[rank].rank == rank:
        return workers[rank]
    return next((place for place in workers if place.rank == rank), None)


def on_node(job: Job, node_id: str) -> list[WorkerPlace]:
    """The job's workers on a node."""
    return [place for place in job.workers if place.node == node_id]


def make_room(turn: Turn, job: Job, node_id: str) -> None:
    """The node has to be empty: a training job's workers leave it, to enter elsewhere. A service's replicas are moved
    one by one.
    """
    if is_service(job) or job.status is JobStatus.STOPPING:
        return
    leave(turn, job, [place.rank for place in on_node(job, node_id) if place.rank not in job.leaving])


def leave(turn: Turn, job: Job, ranks: list[int]) -> None:
    """Tell these workers to leave. They hold their places until their nodes say that they have."""
    if ranks:
        turn.do(e.JobResizing(job=job.id, attempt=job.attempt, remove=tuple(sorted(ranks))))


@dataclass(slots=True)
class _News:
    """The ranks of which something was said. Among those that are `gone`, `failed` are those that ended badly, and
    `lost` those that ended by no fault of the job. Those that were told to leave are neither.
    """

    joined: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


def settle(turn: Turn, job: Job, noted: dict[str, RunStatus]) -> None:
    """Turn what was said of single workers into effects."""
    news = _sorted_out(job, noted)
    if job.status is not JobStatus.STOPPING:
        _tell_of_ends(turn, job, news)
        if news.joined and job.status is JobStatus.STARTING:
            turn.do(e.JobRunning(job=job.id, attempt=job.attempt))
    if not is_service(job) and len(job.done) + len(news.done) == job.spec.workers:
        turn.do(e.JobFinished(job=job.id, attempt=job.attempt))
        return
    if not (news.joined or news.done or news.gone):
        return
    settled = _settled(job, news, turn.now_ms)
    turn.do(settled)
    if news.failed and not is_service(job) and settled.failures > job.spec.retry.budget:
        _fail(turn, job)
    elif not job.workers:
        _end(turn, job, pauses=bool(settled.paused))


def _sorted_out(job: Job, noted: dict[str, RunStatus]) -> _News:
    news = _News()
    for key, status in noted.items():
        if key not in job.runs:
            continue
        rank = int(key)
        if status is RunStatus.RUNNING:
            if job.runs[key] is RunStatus.STARTING:
                news.joined.append(rank)
            continue
        if status not in RUN_IS_OVER:
            continue  # who is told to stop holds its devices until nothing is left of it
        if status is RunStatus.FINISHED and not is_service(job):
            news.done.append(rank)
            continue
        news.gone.append(rank)
        if rank not in job.leaving and job.status is not JobStatus.STOPPING:
            (news.lost if status is RunStatus.STOPPED else news.failed).append(rank)
    return news


def _tell_of_ends(turn: Turn, job: Job, news: _News) -> None:
    """Who judges nodes by how runs end there hears of these."""
    nodes = {place.rank: place.node for place in job.workers} if news.done or news.failed else {}
    turn.ended += [run_end(nodes[rank], job, is_good=True) for rank in news.done]
    turn.ended += [run_end(nodes[rank], job, is_good=False) for rank in news.failed]


def _settled(job: Job, news: _News, now_ms: int) -> e.WorkersSettled:
    failures = _failures_before(job, now_ms) + len(news.failed) if news.failed else job.failures
    again = _lost_again(job, news.lost)
    losses = losses_after(job, now_ms) if again else job.losses
    pause_ms = failure_pause_ms(job, max(failures, 1)) if news.failed else 0
    loss_ms = loss_pause_ms(job, losses) if again else 0
    wrong = {*news.failed, *news.lost}
    failed_on = {place.node for place in job.workers if place.rank in wrong}
    return e.WorkersSettled(
        job=job.id,
        attempt=job.attempt,
        joined=tuple(news.joined),
        done=tuple(news.done),
        gone=tuple(news.gone),
        failures=failures,
        not_before_ms=later(now_ms, max(pause_ms, loss_ms)) if news.failed or again else 0,
        losses=losses,
        avoid=avoided(job, failed_on, now_ms) if wrong else job.avoid,
        paused=tuple((news.failed if pause_ms else []) + (again if loss_ms else [])),
        lost_turn=job.turns + 1 if again else 0,
    )


def _lost_again(job: Job, lost: list[int]) -> list[int]:
    """Those of the lost workers whose loss counts: the first ones of the attempt, and what has entered since a loss
    counted. So an incident that takes many workers one after the other counts once, while a replacement that is lost
    in its turn counts each time.
    """
    turns = {place.rank: place.turn for place in job.workers} if lost else {}
    return [rank for rank in lost if turns[rank] >= job.lost_turn]


def put_off(turn: Turn, job: Job, late: list[int]) -> None:
    """These workers did not start in time: others take their ranks after a pause, rather on other nodes."""
    nodes = {place.node for place in job.workers if place.rank in late}
    pause_ms = backoff_ms(job, max(job.failures, 1))
    turn.do(
        e.WorkersSettled(
            job=job.id,
            attempt=job.attempt,
            failures=job.failures,
            not_before_ms=later(turn.now_ms, pause_ms) if pause_ms else 0,
            losses=job.losses,
            avoid=avoided(job, nodes, turn.now_ms),
            paused=tuple(late) if pause_ms else (),
        )
    )


def _failures_before(job: Job, now_ms: int) -> int:
    """A service that went well for longer than its longest pause begins to count anew."""
    longest_ms = max(job.spec.retry.backoff_most_ms, ENDLESS_MOST_MS)
    went_well = is_service(job) and now_ms - job.not_before_ms > longest_ms
    return 0 if went_well else job.failures


def _fail(turn: Turn, job: Job) -> None:
    """Its budget is used up: the workers that are left stop, and then the job has failed."""
    if not job.workers:
        turn.do(_failed(turn, job))
    elif job.status is not JobStatus.STOPPING:
        turn.do(stopping(job, StopReason.WORKER_FAILED, turn.state.policy.stop_grace_wall_ms))


def _failed(turn: Turn, job: Job) -> e.JobFailed:
    text = turn.words.get((job.id, job.attempt), "") or "a worker failed"
    return e.JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED, text=text)


def _end(turn: Turn, job: Job, *, pauses: bool) -> None:
    """Nothing of the attempt is left on any node. `pauses`: what ended last is to wait."""
    if job.stop_why is StopReason.WORKER_FAILED:
        turn.do(_failed(turn, job))
        return
    if job.stop_why is None:
        turn.do(
            e.JobRequeued(
                job=job.id,
                reason=RequeueReason.NO_WORKER_LEFT,
                not_before_ms=max(job.not_before_ms, turn.now_ms) if pauses else turn.now_ms,
                failures=job.failures,
                losses=job.losses,
                avoid=job.avoid,
            )
        )
        return
    for effect in outcome_of(job, {"": RunStatus.STOPPED}, turn.now_ms):
        turn.do(effect)
