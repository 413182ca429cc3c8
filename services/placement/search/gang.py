"""A gang: all of its workers find their places in one pool, or none does; and the reason why not."""

from __future__ import annotations

from functools import partial

from fallow.services.placement.fit.filling import fill, fullest
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.usable_types import types_in
from fallow.services.placement.owners.holdback import Search, each_off_kept_places, off_kept_places
from fallow.services.placement.policy.placement_policy import Places
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.search.constraint_reasons import narrowed
from fallow.services.placement.search.open_longest import place_where_open_longest, tells_no_time
from fallow.services.placement.search.quota_check import is_parted, refusal_in_pool, refusal_of_places
from fallow.services.placement.search.same_node import place_on_same
from fallow.services.placement.search.topology_request import fits_anywhere, place_wish, seeker_of
from fallow.services.placement.search.whole_nodes import cheapest_places
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.gang_bytes import bytes_of, is_too_large
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.capacity.topology import topology_for
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, Wish, WorkerPlace
from fallow.shared.events.reasons import PendingReason

__all__ = ["POLICIES", "Places", "place_alike", "place_gang"]

NEAREST_FIRST = (
    PendingReason.RESERVED_FOR_OTHER,
    PendingReason.QUOTA_REACHED,
    PendingReason.TOPOLOGY,
    PendingReason.FRAGMENTED,
    PendingReason.NO_FREE_GPUS,
    PendingReason.MAINTENANCE,
    PendingReason.RECORD_TOO_LARGE,
)


def place_gang(state: CellState, spec: JobSpec) -> Places | PendingReason:
    """Places for all workers, in the first pool of the job's that holds them within its tenant's limits; or why there
    are none.

    Of the reasons in several pools the nearest to a start is told: places that are free and kept for an owner before a
    limit, that before a place in the network, that before fragments, and these before no free GPUs. A gang starts in
    one record or not at all: places that no record could tell of are none.
    """
    if state.maintenance_starts and tells_no_time(spec):
        return place_where_open_longest(state, spec, lambda timed: _in_first_pool(state, timed))
    return _in_first_pool(state, spec)


def _in_first_pool(state: CellState, spec: JobSpec) -> Places | PendingReason:
    policy = POLICIES[state.policy.placement]
    same = place_on_same(state, spec) if policy.packs else []
    if same:
        return (same[0],)
    reasons: dict[PendingReason, None] = {}
    pools, order = state.pools, policy.order
    for name in order(state, spec) if order is not None else spec.pools or sorted(pools):
        pool = pools.get(name)
        found = PendingReason.NO_SUCH_NODES if pool is None else _in_pool(state, pool, spec)
        if not isinstance(found, PendingReason):
            if spec.workers == 1 or not is_too_large(spec, found):
                return found
            found = PendingReason.RECORD_TOO_LARGE
        reasons[found if pool is None else narrowed(state, pool, spec, found)] = None
    for reason in NEAREST_FIRST:
        if reason in reasons:
            return reason
    return next(
        (reason for reason in reasons if reason is not PendingReason.NO_SUCH_NODES), PendingReason.NO_SUCH_NODES
    )


def bytes_needed(state: CellState, spec: JobSpec) -> int | None:
    """What the places of a gang would take in its record, in that of its pools where this is the least; None where it
    finds no places.
    """
    pools = [state.pools[name] for name in spec.pools or sorted(state.pools) if name in state.pools]
    found = [_in_pool(state, pool, spec) for pool in pools]
    return min((bytes_of(places) for places in found if not isinstance(places, PendingReason)), default=None)


def place_alike(state: CellState, spec: JobSpec, most: int, *, are_of_one_tenant: bool = True) -> list[WorkerPlace]:
    """The places that `place_gang` would give to so many jobs like this one, if each was started before the next; or to
    the first of them, where it cannot be told of more. The job has one worker of whole GPUs and no wish. Whether each
    is within its quota is looked at here only if they are of one tenant.
    """
    policy = POLICIES[state.policy.placement]
    if policy.alike is None or state.tree.kept.nodes or (state.maintenance_starts and tells_no_time(spec)):
        return []
    places = place_on_same(state, spec, most) if policy.packs else []
    if not places:
        pools = [pool for name in spec.pools or sorted(state.pools) if (pool := state.pools.get(name)) is not None]
        places = next((found for pool in pools if (found := policy.alike(state, pool, spec, most))), [])
    over = state.quotas and are_of_one_tenant and refusal_of_places(state, spec, places)
    return [] if over else places


def _in_pool(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | PendingReason:
    takes_whole = spec.resources.gpu_milli >= GPU
    refusal = refusal_in_pool(state, pool, spec) if state.quotas else None
    if refusal is not None:
        return refusal
    if state.quotas and is_parted(state, pool, spec):
        return _of_one_type(state, pool, spec)
    if takes_whole and pool.free_whole * GPU < spec.gpus_milli:
        return PendingReason.NO_FREE_GPUS
    if _count(pool, spec, allowed(state, pool, spec)) < spec.workers:
        return _why_none_fit(state, pool, spec)
    found = _places_in(state, pool, spec, partial(_search, spec))
    if found is None:
        return _why_not(state, pool, spec)
    if not (spec.exclusive and state.quotas) or isinstance(found, PendingReason):
        return found
    return found if refusal_of_places(state, spec, found) is None else _on_fewest(state, pool, spec)


def _places_in(state: CellState, pool: PoolCapacity, spec: JobSpec, search: Search) -> Places | PendingReason | None:
    """What the search finds beside what is kept for owners."""
    places = search(state, pool)
    if places is None or not state.tree.kept.nodes:
        return places
    return off_kept_places(state, pool, spec, places, search, _fewest_milli(spec))


def _on_fewest(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | PendingReason:
    """Places for an exclusive job that would take too much of what is guaranteed to others on the nodes that the policy
    has chosen: on those where it takes the least. It has kept places only where all others are too much, and where it
    borrows nothing from those for which they are kept. Where only places that are kept for owners would be few enough,
    it waits for these, and for no quota.
    """

    def search(state: CellState, pool: PoolCapacity) -> Places | None:
        return cheapest_places(state, pool, spec)

    fewest = search(state, pool)
    if fewest is None:
        return PendingReason.QUOTA_REACHED
    refusal = refusal_of_places(state, spec, fewest)
    if not state.tree.kept.nodes:
        return fewest if refusal is None else refusal
    found = [*each_off_kept_places(state, pool, spec, fewest, search, _fewest_milli(spec))]
    within = next((places for places in found if refusal_of_places(state, spec, places) is None), None)
    if within is not None:
        return within
    return refusal if found and refusal is not None else PendingReason.RESERVED_FOR_OTHER


def _fewest_milli(spec: JobSpec) -> int:
    """With fewer whole GPUs free than these a search for the gang finds nothing."""
    return spec.gpus_milli if spec.resources.gpu_milli >= GPU else 0


def _search(spec: JobSpec, state: CellState, pool: PoolCapacity) -> Places | None:
    """The places that the policy gives the job in this pool."""
    policy = POLICIES[state.policy.placement]
    if spec.topology is not None:
        return place_wish(state, pool, topology_for(state, pool, spec), spec, spec.topology)
    if spec.workers == 1 and spec.resources.gpu_milli >= GPU:
        alone = policy.alone(state, pool, spec)
        return None if alone is None else (alone,)
    return policy.gang(state, pool, spec)


def _of_one_type(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | PendingReason:
    """Places on nodes of one GPU type, the first that holds the job within its tenant's limits. So what is not
    allowed of one type keeps the job from no other; and what has no places now will have none after other starts.
    """
    reasons: list[PendingReason] = []
    for gpu_type in types_in(state, pool, spec):
        found = _in_pool(state, pool, replace(spec, gpu_type=gpu_type))
        if not isinstance(found, PendingReason):
            return found
        reasons.append(found)
    return next((reason for reason in NEAREST_FIRST if reason in reasons), reasons[0])


def _why_not(state: CellState, pool: PoolCapacity, spec: JobSpec) -> PendingReason:
    """Why a gang for which there are enough free devices has found no places."""
    if spec.topology is not None and spec.topology.wish is Wish.REQUIRED:
        gang = seeker_of(state, pool, topology_for(state, pool, spec), spec)
        if fits_anywhere(gang):
            return PendingReason.TOPOLOGY  # without the wish it would go there
    return _why_none_fit(state, pool, spec)


def _why_none_fit(state: CellState, pool: PoolCapacity, spec: JobSpec) -> PendingReason:
    """Whether room for all is missing, or for any: there are enough free devices for a gang of whole ones."""
    if spec.resources.gpu_milli >= GPU or fill(FreeCapacity.of(state, pool, spec), spec, 1, fullest):
        return PendingReason.FRAGMENTED
    return PendingReason.NO_FREE_GPUS


def _count(pool: PoolCapacity, spec: JobSpec, usable: int | None) -> int:
    """How many workers the free devices could hold of the nodes that the job may use: no index is made to find out that
    these are too few. Workers that need no device, shares where shared devices have room for one, and single workers
    that may go anywhere, are not counted and always pass: they are simply tried.
    """
    milli, gpus = spec.resources.gpu_milli, spec.resources.gpu_milli // GPU
    if not milli or (usable is None and spec.workers == 1):
        return spec.workers
    mask = -1 if usable is None else usable
    if gpus:
        return sum(free // gpus * (nodes & mask).bit_count() for free, nodes in pool.by_free.items())
    if any(share >= milli and nodes & mask for share, nodes in pool.by_share.items()):
        return spec.workers
    whole = pool.free_whole if usable is None else _devices(pool, mask)
    return whole * (GPU // milli)


def _devices(pool: PoolCapacity, among: int) -> int:
    """How many whole devices are free on these nodes."""
    return sum(free * (nodes & among).bit_count() for free, nodes in pool.by_free.items())
