"""What of a job that is no gang changes without its queue: a service gives up replicas that it no longer wants, and
moves those on nodes that are to be emptied.

A replica moves when a new one can have its place before: one more than wanted enters, and once it runs the old one
leaves. Where there is no room for that, it stops when the drain's deadline has come, and the new one comes when there
is room. One replica of a service moves at a time, so that by our own will no two are down. A node that has become
another one, and takes nothing new until what it was is free, is emptied as by a drain whose deadline has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.runs.surplus import in_order_of_cost
from fallow.services.placement.lifecycle.runs.workers import leave
from fallow.services.placement.search.partial_start import places_for
from fallow.shared.cluster.fold.apply_workers import on_nodes_to_be_emptied
from fallow.shared.cluster.model.independent_workers import is_service, lacking, may_enter
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus, WorkerPlace
from fallow.shared.events.reasons import PendingReason


class ReplicaReconciler:
    """The services that may have something to change. Everything here follows from the state."""

    def __init__(self) -> None:
        self._jobs: dict[str, None] | None = None

    def forget(self) -> None:
        """The state is another one."""
        self._jobs = None

    def act(self, decision: DecisionBuilder) -> None:
        """Change what is to be changed behind the effects of this turn."""
        state = decision.state
        if not state.independent_jobs:
            self._jobs = {}
            return
        fresh = dict.fromkeys(state.independent_jobs if self._jobs is None else _touched(state, decision.effects))
        self._jobs = {**(self._jobs or {}), **fresh}
        for job_id in sorted(self._jobs):
            job = state.jobs.get(job_id)
            # Where ranks have waited, the pause of one may be over since.
            may_fit = decision.has_released or job_id in fresh or (job is not None and bool(job.setbacks))
            if job is None or (not _tend(decision, job, may_fit=may_fit) and not decision.is_full):
                del self._jobs[job_id]


def _touched(state: CellState, effects: Iterable[e.AnyEffect]) -> list[str]:
    """The jobs that are no gangs of which these effects may have changed what they have or want."""
    found: list[str] = []
    for effect in effects:
        kind = type(effect)
        if kind is e.WorkersSettled or kind is e.JobRunning or kind is e.JobUpdated:
            found.append(effect.job)  # type: ignore[union-attr]  # said by the line above
        elif kind is e.NodeChanged or kind is e.MaintenanceBegan:
            found += _to_empty(state, effect.spec.id if kind is e.NodeChanged else effect.node)  # type: ignore[union-attr]
    return [job_id for job_id in found if job_id in state.independent_jobs]


def _to_empty(state: CellState, node_id: str) -> Iterable[str]:
    """The jobs on this node, if it is to be emptied."""
    node = state.nodes.get(node_id)
    return node.jobs if node is not None and node.is_to_be_emptied else ()


def _tend(decision: DecisionBuilder, job: Job, *, may_fit: bool) -> bool:
    """Do what can be done for a job now. Whether it has to be looked at again. `may_fit`: there may be room that was
    not there when it was looked at last.
    """
    if decision.is_full or not is_service(job) or job.status not in (JobStatus.STARTING, JobStatus.RUNNING):
        return False
    moving = [place for place in on_nodes_to_be_emptied(decision.state, job) if place.rank not in job.leaving]
    surplus = -lacking(job)
    if surplus > 0:
        staying = [place for place in job.workers if place.rank not in job.leaving]
        leave(decision, job, _to_leave(decision.state, job, staying, surplus))
    elif moving and not job.leaving and RunStatus.STARTING not in job.runs.values():
        _move(decision, job, moving, may_fit=may_fit)
    return bool(moving) or lacking(job) < 0


def _to_leave(state: CellState, job: Job, staying: list[WorkerPlace], surplus: int) -> list[int]:
    """The ranks whose going costs the least. Those that run stay until so many others run as are wanted."""
    running = sum(job.runs[str(place.rank)] is RunStatus.RUNNING for place in staying)
    chosen: list[int] = []
    for place in islice(in_order_of_cost(state, job, staying), surplus):
        if job.runs[str(place.rank)] is RunStatus.RUNNING:
            if running <= job.spec.workers:
                break
            running -= 1
        chosen.append(place.rank)
    return sorted(chosen)


def _move(decision: DecisionBuilder, job: Job, moving: list[WorkerPlace], *, may_fit: bool) -> None:
    if may_fit and may_enter(job, decision.now_ms) == 0:
        found = places_for(decision.state, job, 1, 1, decision.now_ms)
        if not isinstance(found, PendingReason):
            decision.emit(e.JobResizing(job=job.id, attempt=job.attempt, add=found))
            return
    nodes = decision.state.nodes
    due = [place for place in moving if (nodes[place.node].drain_deadline_ms or 0) <= decision.now_ms]
    if due:
        leave(decision, job, [next(in_order_of_cost(decision.state, job, due)).rank])
