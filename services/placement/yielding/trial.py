"""Whether a waiting job would start in proposed places once its victims are gone, and without which of them, too.

It is tried on the state itself, under a checkpoint: the victims' places are given back, and what placement asks before
any planned start is asked of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.placement.queue.planned_places import are_places_of, may_start_in
from fallow.services.placement.search.quota_check import refusal
from fallow.shared.cluster.capacity.topology import path_of
from fallow.shared.cluster.fold.allocation import release, take
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import milli_by_type
from fallow.shared.events.fields.values import GPU, JobSpec, Level, NodeSpec, Wish, WorkerPlace

TRIALS_MAX = 32
"""So many victims at most that stand on a node of the job and hold no device which it gets: each is tried by itself,
which costs as much as the gang is large. Of those elsewhere sums of quotas tell.
"""

_LEVELS = (Level.SUPERSPINE, Level.SPINE, Level.LEAF, Level.DOMAIN, Level.NODE)


def are_places_for(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace], now_ms: int) -> bool:
    """Whether these are places that the job asks for, on nodes in service, in the order of its wish for the network."""
    return are_places_of(state, spec, places, now_ms) and is_as_wished(state, spec, places)


def is_as_wished(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> bool:
    """Whether each slice of the workers stands in one unit of the level that they require."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED:
        return True
    size = wish.slice_workers or spec.workers
    units = [_unit(state.nodes[place.node].spec, wish.level) for place in places]
    slices = [units[first : first + size] for first in range(0, len(units), size)]
    return all(each[0][-1] and each.count(each[0]) == len(each) for each in slices)


def _unit(node: NodeSpec, level: Level) -> tuple[str, ...]:
    """The unit of this level in which a node stands, by the names of all above it; the last is empty where it is not
    known.
    """
    return (*path_of(node), node.id)[: _LEVELS.index(level) + 1]


def would_start(state: CellState, job: Job, places: Sequence[WorkerPlace], victims: Sequence[Job]) -> bool:
    """Whether the job could start in these places if the victims held nothing, nor who is leaving them by now."""
    mark = state.checkpoint()
    _let_go(state, [*victims, *_leaving(state, places)])
    found = may_start_in(state, job.spec, places)
    state.rollback(mark)
    return found


def superfluous(state: CellState, job: Job, places: Sequence[WorkerPlace], victims: Sequence[Job]) -> Job | None:
    """A victim without which the job would start in these places as well, or None: the set is minimal then. On the
    nodes of the job one beyond `TRIALS_MAX` that holds nothing of what the job gets counts as superfluous.
    """
    wanted: dict[str, int] = {}
    for place in places:
        wanted[place.node] = wanted.get(place.node, 0) | mask_of(place.devices)
    doubtful = [victim for victim in victims if not _holds_any(victim, wanted, job.spec)]
    if not doubtful:
        return None
    here = [victim for victim in doubtful if any(place.node in wanted for place in victim.workers + victim.joining)]
    if len(here) > TRIALS_MAX:
        return here[TRIALS_MAX]
    on_its_nodes, milli = {victim.id: None for victim in here}, milli_by_type(state, places)
    mark = state.checkpoint()
    _let_go(state, [*victims, *_leaving(state, places)])
    found = next(
        (
            victim
            for victim in doubtful
            if (
                _starts_beside(state, job, places, victim)
                if victim.id in on_its_nodes
                else _quotas_allow_beside(state, job, milli, victim)
            )
        ),
        None,
    )
    state.rollback(mark)
    return found


def _holds_any(victim: Job, wanted: dict[str, int], spec: JobSpec) -> bool:
    """Whether the victim holds a device as a whole that the job gets, or a part of one that it gets as a whole."""
    for place in victim.workers + victim.joining:
        if mask_of(place.devices) & wanted.get(place.node, 0) and max(place.gpu_milli, spec.resources.gpu_milli) >= GPU:
            return True
    return False


def _starts_beside(state: CellState, job: Job, places: Sequence[WorkerPlace], victim: Job) -> bool:
    """Whether the job starts in these places while this one holds its own."""
    mark = state.checkpoint()
    refusal = take(state, victim.spec.tenant, victim.id, victim.workers + victim.joining)
    found = refusal is None and may_start_in(state, job.spec, places)
    state.rollback(mark)
    return found


def _quotas_allow_beside(state: CellState, job: Job, milli: dict[str, int], victim: Job) -> bool:
    """Whether the quotas of the job let it have so much of each GPU type while this victim, which is on none of its
    nodes, holds its own.
    """
    mark = state.checkpoint()
    refused = take(state, victim.spec.tenant, victim.id, victim.workers + victim.joining)
    found = refused is None and all(
        refusal(state, job.spec, gpu_type, wanted, taken_milli=wanted) is None for gpu_type, wanted in milli.items()
    )
    state.rollback(mark)
    return found


def _leaving(state: CellState, places: Sequence[WorkerPlace]) -> list[Job]:
    """The jobs on the nodes of these places that stop already: what they hold there comes free without a victim."""
    here = {job_id: None for place in places for job_id in state.nodes[place.node].jobs}
    jobs = (state.jobs[job_id] for job_id in here)
    return [job for job in jobs if job.status is JobStatus.STOPPING]


def _let_go(state: CellState, victims: Sequence[Job]) -> None:
    for victim in victims:
        release(state, victim.spec.tenant, victim.id, victim.workers + victim.joining)
