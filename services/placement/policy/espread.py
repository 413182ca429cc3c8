"""E-Spread (Kant, section 3.3.4): inference has a zone of its own. In the zone its workers are spread, and packed if
each takes a whole node: to keep them apart then only scatters the nodes that are free. What the zone does not hold goes
to the general pool by E-Binpack, as all training does: so spreading costs no whole nodes where large jobs need them.

Training never uses the zone, under no policy: that is a constraint of its own
(`shared/cluster/capacity/constraints.py`). So in a pool without a zone, and for all training, this is E-Binpack.
"""

from __future__ import annotations

from fallow.services.placement.fit.filling import count_room, fullest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.gang_packing import GangPacker, places_on
from fallow.services.placement.fit.ranks import by_node
from fallow.services.placement.policy import ebinpack
from fallow.services.placement.policy.ebinpack import pack
from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.services.placement.policy.spread import spread
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import is_general
from fallow.shared.cluster.capacity.topology import Topology, numbers_of, topology_for
from fallow.shared.cluster.model.node import is_in_zone
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, WorkerPlace


def takes_whole_nodes(spec: JobSpec, zone: Topology) -> bool:
    """Whether each worker takes a whole node of the zone, and names no failure domains."""
    gpus = spec.resources.gpu_milli // GPU
    return spec.spread is None and bool(gpus and zone.nodes) and all(node.spec.gpus <= gpus for node in zone.nodes)


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang, or None."""
    if not _uses_zone(pool, spec):
        return ebinpack.place_gang(state, pool, spec)
    if count_room(FreeCapacity.of(state, pool, spec), spec, spec.workers) < spec.workers:
        return None
    places = _in_zone(state, pool, topology_for(state, pool, spec, "zone", is_in_zone), spec)
    if len(places) == spec.workers:
        return by_node(places)
    general = topology_for(state, pool, spec, "general", is_general)
    more = _packed(state, pool, general, replace(spec, workers=spec.workers - len(places), workers_min=None))
    return by_node((*places, *more)) if more else None


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job of whole GPUs: that of `place_gang`."""
    if not _uses_zone(pool, spec):
        return ebinpack.place_alone(state, pool, spec)
    places = place_gang(state, pool, spec)
    return None if places is None else places[0]


def place_alike(state: CellState, pool: PoolCapacity, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """Places for so many jobs of this one worker of whole GPUs, or for the first of them: those of `place_alone`, if
    each was started before the next. In the zone, one by one.
    """
    if not _uses_zone(pool, spec):
        return ebinpack.place_alike(state, pool, spec, most)
    place = place_alone(state, pool, spec)
    return [] if place is None else [place]


def _uses_zone(pool: PoolCapacity, spec: JobSpec) -> bool:
    return pool.nodes_in_zone > 0 and spec.kind is JobKind.INFERENCE


def _in_zone(state: CellState, pool: PoolCapacity, zone: Topology, spec: JobSpec) -> list[WorkerPlace]:
    """All of these workers, or as many as the zone has room for."""
    if not takes_whole_nodes(spec, zone):
        return spread(_room(state, pool, spec, zone), zone, spec, spec.workers)
    gang = GangPacker(zone, spec)
    room = min(spec.workers, sum(map(gang.room_on, range(len(zone.nodes)))))
    return list(places_on(gang, pack(gang, room))) if room else []


def _packed(state: CellState, pool: PoolCapacity, general: Topology, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """All of these workers in the general pool, or nothing."""
    if spec.resources.gpu_milli >= GPU:
        gang = GangPacker(general, spec)
        parts = pack(gang, spec.workers)
        return places_on(gang, parts)
    return places_of_gang(_room(state, pool, spec, general), spec, fullest)


def _room(state: CellState, pool: PoolCapacity, spec: JobSpec, part: Topology) -> FreeCapacity:
    return FreeCapacity.of(state, pool, spec, numbers_of(pool, part, range(len(part.nodes))))


POLICY = PlacementPolicy(
    name="e-spread",
    what_for="The default: with and without services.",
    gang=place_gang,
    alone=place_alone,
    alike=place_alike,
    packs=True,
    learns=False,
)
