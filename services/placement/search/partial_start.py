"""How many workers of a job that is no gang enter now, and where: as many as it wants and as fit.

It starts with as many as there are places for in one pool, but its fewest at least; from then on further ones enter
whenever there is room, each time its turn comes in its queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from fallow.services.placement.fit.empty_capacity import could_hold_one_more, could_hold_singly
from fallow.services.placement.fit.filling import count_room
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.holdback import nothing_kept, off_kept_places
from fallow.services.placement.search.elsewhere import places_elsewhere_first
from fallow.services.placement.search.gang import Places, place_gang
from fallow.services.placement.search.quota_check import is_over_limits, refusal_of_places
from fallow.services.placement.search.replicas import place_replicas
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.gang_bytes import GANG_BYTES_MAX, bytes_of
from fallow.shared.cluster.capacity.gpu_types import gpu_types_of
from fallow.shared.cluster.model.independent_workers import fewest_of, is_service, may_enter, paused_ranks
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace
from fallow.shared.events.reasons import PendingReason

AT_ONCE_MAX = 1_000
"""So many workers enter in one step at most, if the job can start with so few: its record must have room for them."""


def places_to_enter(state: CellState, job: Job, now_ms: int, most: int = AT_ONCE_MAX) -> Places | PendingReason:
    """Places for the workers that enter now, or why there are none."""
    is_first = job.status is JobStatus.QUEUED
    fewest = fewest_of(job) if is_first else 1
    wanted = may_enter(job, now_ms)
    found = places_for(state, job, fewest, min(wanted, max(most, fewest)), now_ms)
    is_refused = isinstance(found, PendingReason) and not is_first
    return PendingReason.NO_SUCH_NODES if is_refused and fills_all_nodes(state, job) else found


def fills_all_nodes(state: CellState, job: Job) -> bool:
    """Whether the open nodes would hold no worker more of a job that runs beside its own, if nothing else ran on them,
    nor all nodes that it would not outlast.
    """
    return not (could_hold_singly(state, job.spec, len(job.workers) + 1) and could_hold_one_more(state, job))


def places_for(state: CellState, job: Job, fewest: int, most: int, now_ms: int) -> Places | PendingReason:
    """Places for at least `fewest` and at most `most` workers beside those that the job has. Those that do not fit
    beside the nodes of its last failures enter next, if enough others do.
    """
    search = _replicas if is_service(job) else _workers
    found = places_elsewhere_first(state, job, lambda: search(state, job, fewest, most))
    if isinstance(found, PendingReason):
        return found
    turn, since_ms = (0, 0) if job.status is JobStatus.QUEUED else (job.turns + 1, now_ms)
    ranks = free_ranks(job, now_ms)
    placed = tuple([replace(place, rank=next(ranks), turn=turn, since_ms=since_ms) for place in found])
    return PendingReason.RECORD_TOO_LARGE if bytes_of(placed) > GANG_BYTES_MAX else placed


def free_ranks(job: Job, now_ms: int) -> Iterator[int]:
    """The ranks without a worker whose work is not done, and that wait for nothing, the lowest first; without end."""
    taken, rank = {*job.done, *paused_ranks(job, now_ms), *(place.rank for place in job.workers)}, 0
    while True:
        if rank not in taken:
            yield rank
        rank += 1


def _workers(state: CellState, job: Job, fewest: int, most: int) -> Places | PendingReason:
    """The workers of a training job go where a gang of so many would go. Who has room for many has room for fewer."""
    found = place_gang(state, _of_size(job.spec, most))
    if not isinstance(found, PendingReason) or fewest >= most:
        return found
    best = place_gang(state, _of_size(job.spec, fewest))
    fits, fails = fewest, most
    while not isinstance(best, PendingReason) and fails - fits > 1:
        middle = (fits + fails) // 2
        tried = place_gang(state, _of_size(job.spec, middle))
        if isinstance(tried, PendingReason):
            fails = middle
        else:
            best, fits = tried, middle
    return best


def _of_size(spec: JobSpec, workers: int) -> JobSpec:
    return replace(spec, workers=workers, workers_min=None)


def _replicas(state: CellState, job: Job, fewest: int, most: int) -> Places | PendingReason:
    """A service's replicas go to its pools in their order. Those that the kept places of owners keep from its fewest
    wait for these, whatever a gang of so many would wait for.
    """
    spec = job.spec
    found = _in_pools(state, job, fewest, most)
    if len(found) >= fewest:
        return tuple(found)
    if state.tree.kept.all and _is_kept_off(state, job, fewest, most):
        return PendingReason.RESERVED_FOR_OTHER
    refused = place_gang(state, _of_size(spec, fewest))
    if refused is PendingReason.NO_SUCH_NODES and could_hold_singly(state, spec, fewest):
        refused = _why_not_in_several(state, spec, fewest)
    # Replicas that are alone on their nodes may be too many nodes, spread as they are, and not on the fewest.
    return refused if isinstance(refused, PendingReason) or spec.exclusive else PendingReason.FRAGMENTED


def _in_pools(state: CellState, job: Job, fewest: int, most: int) -> list[WorkerPlace]:
    """Places for so many replicas, or for as many as are found; none where these are sure to be too few."""
    spec, pools = job.spec, state.pools
    held = [place for place in job.workers if place.rank not in job.leaving]
    found: list[WorkerPlace] = []
    for name in spec.pools or sorted(pools) if _may_find(state, spec, fewest) else ():
        pool = pools.get(name)
        if pool is not None and len(found) < most:
            found += _replicas_in(state, pool, spec, held, found, most - len(found))
    return found


def _is_kept_off(state: CellState, job: Job, fewest: int, most: int) -> bool:
    """Whether nothing but what is kept for owners keeps the fewest replicas off."""
    with nothing_kept(state):
        return len(_in_pools(state, job, fewest, most)) >= fewest


def _may_find(state: CellState, spec: JobSpec, fewest: int) -> bool:
    """Whether there may be places for so many replicas. To count the room is much cheaper than to find places one after
    the other, only to find too few.
    """
    if fewest == 1:
        return True
    if state.quotas and len(types_for(state, spec)) == 1 and is_over_limits(state, _of_size(spec, fewest)):
        return False
    missing = fewest
    for name in spec.pools or state.pools:
        if missing and name in state.pools:
            missing -= count_room(FreeCapacity.of(state, state.pools[name], spec), spec, missing)
    return not missing


def _why_not_in_several(state: CellState, spec: JobSpec, fewest: int) -> PendingReason:
    """Why the fewest replicas that a service starts with have no room, where no single pool could hold them all."""
    alone = place_gang(state, _of_size(spec, 1))
    if isinstance(alone, PendingReason):
        return alone
    free = sum(pool.free_whole for name, pool in state.pools.items() if not spec.pools or name in spec.pools)
    has_too_few = spec.resources.gpu_milli >= GPU and free * GPU < fewest * spec.resources.gpu_milli
    return PendingReason.NO_FREE_GPUS if has_too_few else PendingReason.FRAGMENTED


def _replicas_in(
    state: CellState, pool: PoolCapacity, spec: JobSpec, held: list[WorkerPlace], before: list[WorkerPlace], most: int
) -> list[WorkerPlace]:
    """Places for so many replicas in this pool, or for as many as fit and the tenant may use beside those `before`.
    What it may not use of one GPU type keeps it from no other.
    """
    places = _replicas_off_kept(state, pool, spec, held, most)
    found = _within_quota(state, spec, before, places)
    types = gpu_types_of(state, pool) if len(found) < len(places) and spec.gpu_type is None else {}
    if len(types) < 2:  # noqa: PLR2004 - nearly every pool has one
        return found
    by_type: list[WorkerPlace] = []
    for gpu_type in types:
        of_type = replace(spec, gpu_type=gpu_type)
        more = _replicas_off_kept(state, pool, of_type, [*held, *by_type], most - len(by_type))
        by_type += _within_quota(state, of_type, [*before, *by_type], more)
    return by_type if len(by_type) > len(found) else found


def _replicas_off_kept(
    state: CellState, pool: PoolCapacity, spec: JobSpec, held: list[WorkerPlace], most: int
) -> list[WorkerPlace]:
    """The places of `place_replicas`, but for those that are kept for owners."""
    places = place_replicas(state, pool, spec, held, most)
    if not state.tree.kept.nodes or not places:
        return places

    def search(state: CellState, pool: PoolCapacity) -> Places | None:
        return tuple(place_replicas(state, pool, spec, held, most)) or None

    found = off_kept_places(state, pool, _of_size(spec, len(places)), tuple(places), search, 0)
    return [] if isinstance(found, PendingReason) else list(found)


def _within_quota(
    state: CellState, spec: JobSpec, before: list[WorkerPlace], places: list[WorkerPlace]
) -> list[WorkerPlace]:
    """The first of these places that its tenant may use beside those `before`."""
    if not state.quotas or refusal_of_places(state, spec, [*before, *places]) is None:
        return places
    fits, fails = 0, len(places)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if refusal_of_places(state, spec, [*before, *places[:middle]]) is None:
            fits = middle
        else:
            fails = middle
    return places[:fits]
