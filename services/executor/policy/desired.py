"""What the log wants of each node: the full desired state, and its changes from one batch of decisions to the next.

Only the newest state counts (level-triggered): a job that was started and stopped within one batch is wanted stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from fallow.shared.cluster.model.job import Job, JobStatus, index_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import Run, WorkerPlace


class Action(StrEnum):
    """What shall become of a run."""

    RUN = "run"
    STOP = "stop"


RunKey = tuple[str, int, int | None, int]
"""(job, attempt, rank, turn): of a gang all of its workers on a node are one run, and rank is None."""


class DesiredRun(NamedTuple):
    """One run that the log wants on a node: these workers of this attempt. `started_ms` is the cell time of its start
    decision, `grace_wall_ms` how long a stop may take. Of a job that is no gang each worker is a run: its `rank`, and
    the `turn` in which it entered.
    """

    job: str
    attempt: int
    action: Action
    places: tuple[WorkerPlace, ...]
    run: Run
    started_ms: int
    grace_wall_ms: int = 0
    rank: int | None = None
    turn: int = 0

    @property
    def name(self) -> str:
        """What tells it from all other runs that the log may want on its node at the same time."""
        return self.job if self.rank is None else worker_name(self.job, self.rank)

    @property
    def node(self) -> str:
        """On which node it is wanted."""
        return self.places[0].node

    @property
    def key(self) -> RunKey:
        """What tells it from all other runs that ever were on its node."""
        return (self.job, self.attempt, self.rank, self.turn)

    @property
    def said_as(self) -> str | None:
        """Under which name the log keeps what becomes of it; None: under that of its node."""
        return None if self.rank is None else str(self.rank)


def worker_name(job: str, rank: int) -> str:
    """The name of the run of a single worker: no job is called so."""
    return f"{job} {rank}"


class Change(NamedTuple):
    """What the log wants of one run on one node now; None: nothing (any more)."""

    node: str
    name: str
    run: DesiredRun | None


MOVES_RUNS: frozenset[type[e.Effect]] = frozenset(
    {
        e.JobStarted,
        e.JobResizing,
        e.JobResized,
        e.WorkersSettled,
        e.JobStopping,
        e.JobPreempted,
        e.JobRequeued,
        e.JobFinished,
        e.JobFailed,
        e.JobCancelled,
    }
)
"""The effects behind which a node may have something to do. All of them are about one job."""

CHANGES_NODES: frozenset[type[e.Effect]] = frozenset({e.NodeChanged, e.LeaseExpired, e.NodeRemoved})
"""The effects that change a node itself: its boot, its state."""


Moved = dict[str, set[int] | None]
"""The jobs whose runs decisions may have moved: of which of their single workers; None: any of its runs."""


class Touched(NamedTuple):
    """The nodes that decisions themselves changed, and the jobs whose runs they may have moved."""

    nodes: list[str]
    jobs: Moved


def touched(decisions: Sequence[Decision]) -> Touched:
    """What these decisions touch, each once, in the order in which they first do."""
    nodes: dict[str, None] = {}
    jobs: Moved = {}
    for decision in decisions:
        for effect in decision.effects:
            kind = type(effect)
            if kind in MOVES_RUNS:
                _moved(jobs, effect)
            elif kind in CHANGES_NODES:
                nodes[effect.spec.id if isinstance(effect, e.NodeChanged) else effect.node] = None  # type: ignore[union-attr]
    return Touched([*nodes], jobs)


def _moved(jobs: Moved, effect: e.AnyEffect) -> None:
    """One more effect that may have moved runs: of a job with thousands of workers mostly few."""
    job: str = effect.job  # type: ignore[union-attr]  # see MOVES_RUNS
    if isinstance(effect, e.WorkersSettled):
        ranks = (*effect.done, *effect.gone)
    elif isinstance(effect, e.JobResizing):
        ranks = (*(place.rank for place in effect.add), *effect.remove)
    else:
        jobs[job] = None
        return
    known = jobs.setdefault(job, set())
    if known is not None:
        known.update(ranks)


def desired_of(state: CellState, node_id: str) -> tuple[DesiredRun, ...]:
    """The full desired state of one node, in the order in which its jobs came to it; nothing for a node that the log
    does not know.
    """
    node = state.nodes.get(node_id)
    if node is None:
        return ()
    return tuple(run for job_id in node.jobs for run in _runs_on(state, state.jobs[job_id], node_id))


def _runs_on(state: CellState, job: Job, node_id: str) -> Iterable[DesiredRun]:
    # By the index: a process that takes over all nodes of a job would otherwise look at each worker once for each node.
    here = index_of(job).on(node_id)
    if not job.spec.gang:
        return [_worker(state, job, place) for place in here]
    return (_desired(job, (*here, *(place for place in job.joining if place.node == node_id))),)


class DesiredStates:
    """The desired states of the nodes that one executor owns.

    It remembers which of these nodes hold which job, because a decision that ends a job does not say where the job was;
    of jobs that are no gangs which workers.
    """

    def __init__(self) -> None:
        self._owned: dict[str, None] = {}
        self._holders: dict[str, tuple[str, ...]] = {}
        self._workers: dict[str, dict[int, DesiredRun]] = {}

    def own(self, state: CellState, node_id: str) -> tuple[DesiredRun, ...]:
        """Follow this node from now on; its full desired state."""
        self._owned[node_id] = None
        wanted = desired_of(state, node_id)
        for run in wanted:
            if run.rank is not None:
                self._workers.setdefault(run.job, {})[run.rank] = run
                continue
            holders = self._holders.get(run.job, ())
            if node_id not in holders:
                self._holders[run.job] = (*holders, node_id)
        return wanted

    def disown(self, node_ids: Iterable[str]) -> None:
        """Follow these nodes no longer."""
        for node_id in node_ids:
            self._owned.pop(node_id, None)
        left = ((job, tuple(n for n in nodes if n in self._owned)) for job, nodes in self._holders.items())
        self._holders = {job: nodes for job, nodes in left if nodes}
        for job, workers in [*self._workers.items()]:
            self._workers[job] = {rank: run for rank, run in workers.items() if run.node in self._owned}
            if not self._workers[job]:
                del self._workers[job]

    def changes(self, state: CellState, jobs: Moved) -> list[Change]:
        """What accepted decisions that touched these jobs, and whose effects are in the state, change on the owned
        nodes.
        """
        found: list[Change] = []
        for job_id, ranks in jobs.items():
            self._compare(state, job_id, ranks, found)
        return found

    def _compare(self, state: CellState, job_id: str, ranks: set[int] | None, found: list[Change]) -> None:
        job = state.jobs.get(job_id)
        if (job is not None and not job.spec.gang) or (self._workers and job_id in self._workers):
            self._compare_workers(state, job_id, ranks, found)
            return
        if job is None or not job.workers:
            found += [Change(node_id, job_id, None) for node_id in self._holders.pop(job_id, ())]
            return
        before, now = self._holders.get(job_id, ()), _by_node(job, self._owned)
        if before:
            found += [Change(node_id, job_id, None) for node_id in before if node_id not in now]
        found += [Change(node_id, job_id, run) for node_id, run in now.items()]
        if now:
            self._holders[job_id] = tuple(now)
        elif before:
            del self._holders[job_id]

    def _compare_workers(self, state: CellState, job_id: str, ranks: set[int] | None, found: list[Change]) -> None:
        """Compare the workers of a job whose workers are runs of their own: of these ranks, as all others go on as
        before.
        """
        job, known = state.jobs.get(job_id), self._workers.setdefault(job_id, {})
        before = known if ranks is None else {rank: known[rank] for rank in ranks if rank in known}
        now: dict[int, DesiredRun] = {}
        if job is not None and not job.spec.gang:
            for place in job.workers if ranks is None else index_of(job).find_all(ranks):
                if place.node in self._owned:
                    now[place.rank] = _worker(state, job, place)
        left = [run for rank, run in before.items() if rank not in now or now[rank].node != run.node]
        found += [Change(run.node, run.name, None) for run in sorted(left, key=_in_order)]
        found += [Change(run.node, run.name, run) for rank, run in now.items() if before.get(rank) != run]
        if ranks is None:
            known = self._workers[job_id] = now
        else:
            for rank in before:
                del known[rank]
            known.update(now)
        if not known:
            del self._workers[job_id]


def _in_order(run: DesiredRun) -> tuple[int, int]:
    """The place of a single worker among all of its job: behind all that entered before."""
    return run.turn, run.rank or 0


def _worker(state: CellState, job: Job, place: WorkerPlace) -> DesiredRun:
    """The run of one worker of a job that is no gang."""
    job_stops = job.status is JobStatus.STOPPING
    stops = job_stops or place.rank in job.leaving
    grace_ms = job.stop_grace_wall_ms if job_stops else state.policy.stop_grace_wall_ms if stops else 0
    return DesiredRun(
        job.spec.id,
        job.attempt,
        Action.STOP if stops else Action.RUN,
        (place,),
        job.spec.run,
        place.since_ms if place.turn else job.started_ms or 0,
        grace_ms,
        place.rank,
        place.turn,
    )


def _by_node(job: Job, among: dict[str, None]) -> dict[str, DesiredRun]:
    """The runs of a job's attempt on these nodes, in the order of its workers."""
    if len(job.workers) == 1 and not job.joining:  # most jobs are of one worker
        node_id = job.workers[0].node
        return {node_id: _desired(job, job.workers)} if node_id in among else {}
    places: dict[str, list[WorkerPlace]] = {}
    for place in job.workers + job.joining:
        if place.node in among:
            places.setdefault(place.node, []).append(place)
    return {node_id: _desired(job, tuple(here)) for node_id, here in places.items()}


def _desired(job: Job, here: tuple[WorkerPlace, ...]) -> DesiredRun:
    staying = here if not job.leaving else tuple(place for place in here if place.rank not in job.leaving)
    stops = job.status is JobStatus.STOPPING or not staying
    return DesiredRun(
        job.spec.id,
        job.attempt,
        Action.STOP if stops else Action.RUN,
        staying or here,
        job.spec.run,
        job.started_ms or 0,
        job.stop_grace_wall_ms,
    )
