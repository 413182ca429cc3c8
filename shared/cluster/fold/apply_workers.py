"""What the effects on single workers do to a job that is no gang."""

from __future__ import annotations

from fallow.shared.cluster.fold import apply_jobs as jobs
from fallow.shared.cluster.fold.allocation import release, take
from fallow.shared.cluster.fold.errors import IllegalEffect, require
from fallow.shared.cluster.model.independent_workers import is_service, paused_ranks, starting
from fallow.shared.cluster.model.job import Job, JobStatus, index_of, worker_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus, Setback, WorkerPlace

_STARTING, _RUNNING, _STOPPING = JobStatus.STARTING, JobStatus.RUNNING, JobStatus.STOPPING


def resizing(state: CellState, effect: e.JobResizing, at_ms: int) -> None:
    """Further workers enter the attempt, others shall leave it."""
    job = jobs.current(state, effect)
    if job.spec.gang:
        jobs.resizing(state, effect, at_ms)
        return
    jobs.in_status(job, _STARTING, _RUNNING)
    removed = _removed(job, effect)
    _enter_rightly(state, job, effect.add, removed, at_ms)
    journal = state.undo_log
    if effect.add:
        refusal = take(state, job.spec.tenant, job.id, effect.add)
        if refusal is not None:
            raise IllegalEffect(f"job {job.id}: {refusal}")
        journal.set(job, "workers", index_of(job).enter(effect.add))
        journal.set(job, "runs", {**job.runs, **starting(effect.add)})
        journal.set(job, "turns", job.turns + 1)
    if removed:
        journal.set(job, "leaving", tuple(sorted({*removed, *job.leaving})))
    if state.unacknowledged is not None:
        state.unacknowledged.start(state, effect.add)


def _removed(job: Job, effect: e.JobResizing) -> set[int]:
    removed = set(effect.remove)
    are_held = len(removed) == len(effect.remove) and all(worker_of(job, rank) is not None for rank in removed)
    require(are_held, f"job {job.id} has no such rank to remove")
    require(not removed.intersection(job.leaving), f"job {job.id} removes a rank that leaves already")
    return removed


def _enter_rightly(state: CellState, job: Job, places: tuple[WorkerPlace, ...], removed: set[int], at_ms: int) -> None:
    """I3: a rank has one worker at a time, none whose work is done has any, and there are no more than are wanted."""
    if not places:
        return
    jobs.get_what_they_asked_for(job, places)
    jobs.are_allowed_there(state, job, places)
    has_rank(job, places)
    ranks = {place.rank for place in places}
    require(not ranks.intersection(job.done), f"job {job.id} needs no such rank any more")
    require(is_service(job) or max(ranks) < job.spec.workers, f"job {job.id} has {job.spec.workers} ranks alone")
    require(ranks.isdisjoint(paused_ranks(job, at_ms)), f"job {job.id} waits with such a rank at {at_ms}")
    turn = job.turns + 1
    require(
        all(place.turn == turn and place.since_ms == at_ms for place in places),
        f"job {job.id}: these workers enter in turn {turn} at {at_ms}",
    )
    left, wanted = _staying(state, job, removed) + len(places), job.spec.workers - len(job.done)
    require(left <= wanted, f"job {job.id} wants {wanted} workers, not {left}")


def has_rank(job: Job, places: tuple[WorkerPlace, ...]) -> None:
    """Refuse places of a rank that has a worker, also among themselves."""
    ranks = {place.rank for place in places}
    are_new = len(ranks) == len(places) and all(worker_of(job, rank) is None for rank in ranks)
    require(are_new, f"job {job.id} has a worker of an added rank already")


def _staying(state: CellState, job: Job, removed: set[int]) -> int:
    """How many of the job's workers stay: those that neither leave nor are on a node that is to be emptied."""
    index, leaving = index_of(job), removed.union(job.leaving)
    emptied = [place for place in on_nodes_to_be_emptied(state, job) if place.rank not in leaving]
    return len(job.workers) - len(index.find_all(leaving)) - len(emptied)


def on_nodes_to_be_emptied(state: CellState, job: Job) -> list[WorkerPlace]:
    """The job's workers on nodes that are to be emptied, in the order of all its workers."""
    index, nodes = index_of(job), state.nodes
    emptied = [node for node in index.nodes if nodes[node].is_to_be_emptied]
    return index.find_all([place.rank for node in emptied for place in index.on(node)]) if emptied else []


def settled(state: CellState, effect: e.WorkersSettled, at_ms: int) -> None:
    """Some workers have started, others are over and their places free. What follows where none is left stands in the
    same record.
    """
    job, journal = jobs.current(state, effect), state.undo_log
    require(not job.spec.gang, f"job {job.id} is a gang")
    jobs.in_status(job, _STARTING, _RUNNING, _STOPPING)
    over = {*effect.done, *effect.gone}
    require(len(over) == len(effect.done) + len(effect.gone), f"job {job.id} has a worker that is over twice")
    if state.unacknowledged is not None:
        state.unacknowledged.heard(state, job, (*effect.joined, *over))
    journal.set(job, "runs", _runs_behind(job, effect))
    if over:
        index = index_of(job)
        release(state, job.spec.tenant, job.id, tuple(index.find_all(over)))
        journal.set(job, "workers", index.leave(over))
        journal.set(job, "leaving", tuple(rank for rank in job.leaving if rank not in over))
    if effect.done:
        journal.set(job, "done", tuple(sorted({*job.done, *effect.done})))
    journal.set(job, "failures", effect.failures)
    journal.set(job, "losses", effect.losses)
    journal.set(job, "avoid", effect.avoid)
    if effect.setbacks or (effect.done and job.setbacks):
        journal.set(job, "setbacks", _setbacks_behind(job, effect, at_ms))
        journal.set(job, "not_before_ms", max(job.not_before_ms, *(s.until_ms for s in effect.setbacks), 0))


def _setbacks_behind(job: Job, effect: e.WorkersSettled, at_ms: int) -> tuple[Setback, ...]:
    """At most one of each rank. Of those whose work is done there is none, and none of a rank that a service has had
    and does not want any more, once its pause is over.
    """
    fresh = {setback.rank: setback for setback in effect.setbacks}
    require(len(fresh) == len(effect.setbacks), f"job {job.id} has two setbacks of one rank")
    had = all(worker_of(job, rank) is not None for rank in fresh.keys() - set(effect.gone))
    require(had, f"job {job.id} has no such rank to wait with")
    kept = {
        setback.rank: setback
        for setback in job.setbacks
        if setback.rank < job.spec.workers or setback.until_ms > at_ms or worker_of(job, setback.rank) is not None
    }
    kept.update(fresh)
    return tuple(kept[rank] for rank in sorted(kept.keys() - set(job.done)))


def _runs_behind(job: Job, effect: e.WorkersSettled) -> dict[str, RunStatus]:
    runs = {**job.runs}
    for rank in effect.joined:
        require(
            runs.get(str(rank)) is RunStatus.STARTING, f"job {job.id} has no worker of rank {rank} that is starting"
        )
        runs[str(rank)] = RunStatus.RUNNING
    for rank in (*effect.done, *effect.gone):
        require(runs.pop(str(rank), None) is not None, f"job {job.id} has no worker of rank {rank}")
    return runs
