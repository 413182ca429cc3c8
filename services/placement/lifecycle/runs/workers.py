"""What becomes of the workers of a job that is no gang, each by itself.

A training job is over when the work of each rank is done. A worker that fails is tried again alone, as long as the
job's retry budget lasts and after the pause that follows a failure; beyond the budget the whole job has failed.

A service's replicas have no work that would ever be done: one that ends, well or not, is replaced after a pause. No
budget ends a service.

Only what failed waits, or what was lost again after it had come back: all other workers enter at once meanwhile. Each
rank waits for itself: its pauses grow with its own failures and losses in a row, begin anew when it has run for long,
and outlast the attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.services.placement.decision.decision import DecisionBuilder, end_by_node, first_words, run_end
from fallow.services.placement.lifecycle.runs.outcome import outcome_of
from fallow.services.placement.lifecycle.runs.retry import (
    ENDLESS_MAX_MS,
    FAULTS_MAX,
    LOSSES_MAX,
    RUNS_WELL_MS,
    avoided,
    backoff_ms,
    failed_by_nodes,
    failure_pause_ms,
    in_words,
    loss_pause_ms,
)
from fallow.services.placement.requests.requests import stopping
from fallow.shared.cluster.model.independent_workers import is_service, may_start_ms
from fallow.shared.cluster.model.job import Job, JobStatus, index_of, worker_of
from fallow.shared.events import effects as e
from fallow.shared.events.base import TEXT_CHARACTERS_MAX, later
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import RUN_IS_OVER, RunStatus, Setback, WorkerPlace
from fallow.shared.events.reasons import FailReason, RequeueReason, StopReason


def key_of(job: Job, node_id: str, rank: int | None, turn: int) -> str | None:
    """Under which name the state keeps the run of this worker on this node; None where the job has no such one."""
    place = None if rank is None else worker_of(job, rank)
    return None if place is None or place.node != node_id or place.turn != turn else str(rank)


def on_node(job: Job, node_id: str) -> list[WorkerPlace]:
    """The job's workers on a node."""
    return [*index_of(job).on(node_id)]


def make_room(decision: DecisionBuilder, job: Job, node_id: str) -> None:
    """The node has to be empty: a training job's workers leave it, to enter elsewhere. A service's replicas are moved
    one by one.
    """
    if is_service(job) or job.status is JobStatus.STOPPING:
        return
    leaving = frozenset(job.leaving)
    leave(decision, job, [place.rank for place in on_node(job, node_id) if place.rank not in leaving])


def leave(decision: DecisionBuilder, job: Job, ranks: list[int]) -> None:
    """Tell these workers to leave. They hold their places until their nodes say that they have."""
    if ranks:
        decision.emit(e.JobResizing(job=job.id, attempt=job.attempt, remove=tuple(sorted(ranks))))


@dataclass(slots=True)
class _News:
    """The ranks of which something was said. Among those that are `gone`, `failed` are those that ended badly, and
    `lost` those that ended by no fault of the job. Those that were told to leave are neither. `faults` is what nodes
    said of those lost ones that failed by their node's own fault.
    """

    joined: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)


def settle(decision: DecisionBuilder, job: Job, noted: dict[str, RunStatus]) -> None:
    """Turn what was said of single workers into effects."""
    news = _sorted_out(job, noted)
    faults = decision.faults_among((job.id, job.attempt), noted)
    news.faults = {rank: faults[str(rank)] for rank in news.lost if str(rank) in faults}
    if job.status is not JobStatus.STOPPING:
        _tell_of_ends(decision, job, news)
        if news.joined and job.status is JobStatus.STARTING:
            decision.emit(e.JobRunning(job=job.id, attempt=job.attempt))
    if not is_service(job) and len(job.done) + len(news.done) == job.spec.workers:
        decision.emit(e.JobFinished(job=job.id, attempt=job.attempt))
        return
    if not (news.joined or news.done or news.gone):
        return
    settled = _settled(job, news, decision.now_ms)
    decision.emit(settled)
    if not is_service(job) and news.failed and settled.failures > job.spec.retry.budget:
        _fail(decision, job, StopReason.WORKER_FAILED, _failure_text(decision, job, news.failed))
    elif not is_service(job) and (told := _worn_out(news, settled)):
        _fail(decision, job, StopReason.DEVICE_FAILED, told)
    elif not job.workers:
        _end(decision, job)


def _failure_text(decision: DecisionBuilder, job: Job, failed: list[int]) -> str:
    said = decision.failures.get((job.id, job.attempt), {})
    return first_words({key: text for key, text in said.items() if int(key) in failed}) or ""


def _worn_out(news: _News, settled: e.WorkersSettled) -> str:
    """What is to be told of the first rank that was lost too often in a row, and now by its node's own fault; empty
    where there is none.
    """
    for setback in settled.setbacks:
        if setback.losses > FAULTS_MAX and setback.rank in news.faults:
            often = f"its worker of rank {setback.rank} was lost {setback.losses} times in a row"
            return f"{often}, the last time{in_words(news.faults[setback.rank])}"[:TEXT_CHARACTERS_MAX]
    return ""


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


def _tell_of_ends(decision: DecisionBuilder, job: Job, news: _News) -> None:
    """Who judges nodes by how runs end there hears of these."""
    nodes = {place.rank: place.node for place in index_of(job).find_all((*news.done, *news.failed, *news.lost))}
    decision.ended += [run_end(nodes[rank], job, is_good=True) for rank in news.done]
    decision.ended += [run_end(nodes[rank], job, is_good=False) for rank in news.failed]
    decision.ended += [end_by_node(nodes[rank], job) for rank in news.faults]


def _settled(job: Job, news: _News, now_ms: int) -> e.WorkersSettled:
    failures = _failures_before(job, now_ms) + len(news.failed) if news.failed else job.failures
    wrong = {*news.failed, *news.lost}
    setbacks = _setbacks(job, wrong, set(news.failed), now_ms) if wrong else ()
    losses = [setback.losses for setback in setbacks] if news.lost else [job.losses]
    failed_on = {place.node for place in index_of(job).find_all(wrong)}
    return e.WorkersSettled(
        job=job.id,
        attempt=job.attempt,
        joined=tuple(news.joined),
        done=tuple(news.done),
        gone=tuple(news.gone),
        failures=failures,
        losses=max(losses),
        avoid=avoided(job, failed_on, now_ms) if wrong else job.avoid,
        setbacks=setbacks,
    )


def _setbacks(job: Job, wrong: set[int], failed: set[int], now_ms: int) -> tuple[Setback, ...]:
    """What of these ranks is remembered, of which some have `failed` and the others were lost: a failure is followed by
    a pause, a loss only if it is one of several in a row.
    """
    before, found = {setback.rank: setback for setback in job.setbacks}, []
    for place in index_of(job).find_all(wrong):
        rank = place.rank
        failures, losses = _in_a_row(job, before.get(rank), place, now_ms)
        if rank in failed:
            failures += 1
            pause_ms = failure_pause_ms(job, failures)
        else:
            losses = min(losses + 1, LOSSES_MAX)
            pause_ms = loss_pause_ms(job, losses)
        until_ms = later(now_ms, pause_ms) if pause_ms else 0
        found.append(Setback(rank=rank, until_ms=until_ms, failures=failures, losses=losses))
    return tuple(sorted(found, key=lambda setback: setback.rank))


def _in_a_row(job: Job, before: Setback | None, place: WorkerPlace, now_ms: int) -> tuple[int, int]:
    """How often the rank has failed and was lost before this worker, if that has not run for long."""
    if before is None:
        return 0, 0
    ran_ms = now_ms - max(place.since_ms, job.started_ms or 0)
    failures = before.failures if ran_ms <= _longest_ms(job) else 0
    return failures, before.losses if ran_ms < RUNS_WELL_MS else 0


def put_off(decision: DecisionBuilder, job: Job, late: list[int]) -> None:
    """These workers did not start in time: others take their ranks after a pause, rather on other nodes."""
    nodes = {place.node for place in index_of(job).find_all(late)}
    before = {setback.rank: setback for setback in job.setbacks}
    decision.emit(
        e.WorkersSettled(
            job=job.id,
            attempt=job.attempt,
            failures=job.failures,
            losses=job.losses,
            avoid=avoided(job, nodes, decision.now_ms),
            setbacks=tuple(
                _put_off(job, before.get(rank) or Setback(rank=rank), decision.now_ms) for rank in sorted(late)
            ),
        )
    )


def _put_off(job: Job, before: Setback, now_ms: int) -> Setback:
    """The rank counts no failure more, but waits as behind one."""
    pause_ms = backoff_ms(job, max(before.failures, 1))
    return replace(before, until_ms=later(now_ms, pause_ms) if pause_ms else 0)


def _failures_before(job: Job, now_ms: int) -> int:
    """A service that went well for longer than its longest pause begins to count anew."""
    went_well = is_service(job) and now_ms - job.not_before_ms > _longest_ms(job)
    return 0 if went_well else job.failures


def _longest_ms(job: Job) -> int:
    return max(job.spec.retry.backoff_max_ms, ENDLESS_MAX_MS)


def _fail(decision: DecisionBuilder, job: Job, why: StopReason, text: str) -> None:
    """Its budget is used up, or nodes fail it for ever: the workers that are left stop, and then the job has failed.
    The order to stop tells why: another writer may settle the end.
    """
    if not job.workers:
        decision.emit(_failed(job, why, text))
    else:
        decision.emit(stopping(job, why, decision.state.policy.stop_grace_wall_ms, text=text))


def _failed(job: Job, why: StopReason, text: str) -> e.JobFailed:
    if why is StopReason.DEVICE_FAILED:
        return failed_by_nodes(job, text)
    return e.JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED, text=text or "a worker failed")


def _end(decision: DecisionBuilder, job: Job) -> None:
    """Nothing of the attempt is left on any node. It starts again with those ranks whose pauses are over."""
    if job.stop_why in (StopReason.WORKER_FAILED, StopReason.DEVICE_FAILED):
        decision.emit(_failed(job, job.stop_why, job.stop_text))
        return
    if job.stop_why is None:
        decision.emit(
            e.JobRequeued(
                job=job.id,
                reason=RequeueReason.NO_WORKER_LEFT,
                not_before_ms=may_start_ms(job, decision.now_ms),
                failures=job.failures,
                losses=job.losses,
                avoid=job.avoid,
            )
        )
        return
    for effect in outcome_of(job, {"": RunStatus.STOPPED}, decision.now_ms):
        if isinstance(effect, e.JobRequeued):
            start_ms = max(effect.not_before_ms, may_start_ms(job, decision.now_ms))
            decision.emit(replace(effect, not_before_ms=start_ms))
        else:
            decision.emit(effect)
