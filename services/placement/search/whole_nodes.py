"""How much an exclusive job takes: whole nodes. The GPUs beside its workers are idle, but no other job may have them.

The nodes that hold it with the fewest GPUs are chosen kind by kind, those first that have the fewest for each worker
that they hold, and of equals the larger ones. Another choice is looked for as long as it may take less. What is found
so is the least: by that a job is told that it is never allowed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.services.placement.fit.empty_capacity import goes_to_several_pools, reach_of
from fallow.services.placement.fit.fewest_gpus import cheapest
from fallow.services.placement.fit.filling import fullest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.whole_units import Choice, fewest_in_units, gpus_in_units, is_in_units, offers_of
from fallow.services.placement.policy.placement_policy import Places
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.hardware import hardware_of
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.capacity.taken_alone import healthy_milli
from fallow.shared.cluster.model.node import lowest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace


def takes_milli(state: CellState, spec: JobSpec, gpu_type: str) -> int:
    """The milli-GPUs of this type that others cannot have once the whole job runs on such: what it asks for, or all
    healthy ones of its nodes if it is alone there, at the least, were all nodes empty that no person has closed.
    """
    if not spec.exclusive:
        return spec.gpus_milli
    typed = spec if spec.gpu_type == gpu_type else replace(spec, gpu_type=gpu_type)
    reach = reach_of(state, typed)
    if is_in_units(spec):
        gpus = [gpus_in_units(state, state.pools[name], typed, mask) for name, mask in reach.items()]
        return min((each * GPU for each in gpus if each), default=spec.gpus_milli)
    offers = [offers_of(hardware_of(state, state.pools[name]), typed, mask) for name, mask in reach.items()]
    if goes_to_several_pools(spec):
        offers = [[offer for each in offers for offer in each]]
    chosen = [found for each in offers if (found := cheapest(each, spec.workers))]
    return min((sum(each.gpus * many * GPU for each, many in found) for found in chosen), default=spec.gpus_milli)


def whole_by_type(state: CellState, places: Iterable[WorkerPlace]) -> dict[str, int]:
    """The healthy milli-GPUs of each type on the nodes of these places."""
    found: dict[str, int] = {}
    for node_id in dict.fromkeys(place.node for place in places):
        node = state.nodes[node_id]
        found[node.spec.gpu_type] = found.get(node.spec.gpu_type, 0) + healthy_milli(node)
    return found


def cheapest_places(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """Places for an exclusive job on the nodes of a pool with the fewest GPUs that hold it now as it requires, whatever
    the policy would choose; None where there are none.
    """
    free, usable = 0, allowed(state, pool, spec)
    for nodes in pool.by_free.values():
        free |= nodes
    free = free if usable is None else free & usable
    if is_in_units(spec):
        found = fewest_in_units(pool, hardware_of(state, pool), spec, free)
        return None if found is None else _places_in_units(state, pool, spec, found)
    among = 0
    for offer, many in cheapest(offers_of(hardware_of(state, pool), spec, free), spec.workers):
        among |= lowest_of(offer.nodes, many)
    return places_of_gang(FreeCapacity.of(state, pool, spec, among), spec, fullest) if among else None


def _places_in_units(state: CellState, pool: PoolCapacity, spec: JobSpec, choice: Choice) -> Places | None:
    """The places on these nodes, the ranks unit by unit."""
    places: list[WorkerPlace] = []
    for part in choice.parts:
        room = FreeCapacity.of(state, pool, spec, part.nodes)
        found = places_of_gang(room, replace(spec, workers=part.workers, workers_min=None), fullest)
        if found is None:
            return None
        places += [replace(place, rank=place.rank + len(places)) for place in found]
    return tuple(places) or None
