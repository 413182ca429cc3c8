"""E-Spread (Kant, section 3.3.4): inference has a zone of its own. In the zone its workers are spread, and packed if
each takes a whole node: to keep them apart then only scatters the nodes that are free. What the zone does not hold goes
to the general pool by E-Binpack, as all training does: so spreading costs no whole nodes where large jobs need them.

Training never uses the zone. An inference node that is lent to another pool works there like any other.
"""

from __future__ import annotations

from services.placement.policy.ebinpack import pack
from services.placement.policy.filling import fullest, places_of_gang
from services.placement.policy.fit import Room
from services.placement.policy.packing import Gang, places_on
from services.placement.policy.ranks import by_node
from services.placement.policy.spread import spread
from shared.cluster.capacity import PoolCapacity
from shared.cluster.marks import Test
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.cluster.topology import Topology, numbers_of, topology_for
from shared.events.value import replace
from shared.events.values import GPU, JobKind, JobSpec, NodeRole, WorkerPlace

ZONE_LABEL, ZONE_NAME = "zone", "inference"
"""A node with this label belongs to the zone whatever its role."""


def is_in_zone(node: Node) -> bool:
    """Whether the node is kept for inference."""
    if node.lent_to is not None:
        return False
    return node.spec.role is NodeRole.INFERENCE or node.spec.labels.get(ZONE_LABEL) == ZONE_NAME


def is_general(node: Node) -> bool:
    """Whether the node is for everything else."""
    return not is_in_zone(node)


def takes_whole_nodes(spec: JobSpec, zone: Topology) -> bool:
    """Whether each worker takes a whole node of the zone, and names no failure domains."""
    gpus = spec.resources.gpu_milli // GPU
    return spec.spread is None and bool(gpus and zone.nodes) and all(node.spec.gpus <= gpus for node in zone.nodes)


def part_for(spec: JobSpec) -> tuple[str, Test] | None:
    """The part of a pool on which a job may run, None for all of it."""
    return None if spec.kind is JobKind.INFERENCE else ("general", is_general)


def nodes_for(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Topology:
    """The nodes of the pool on which a job with a wish for its place may run."""
    if spec.kind is JobKind.INFERENCE:
        return topology_for(state, pool, spec)
    return topology_for(state, pool, spec, "general", is_general)


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang, or None."""
    places: list[WorkerPlace] = []
    if spec.kind is JobKind.INFERENCE:
        places = _in_zone(state, pool, topology_for(state, pool, spec, "zone", is_in_zone), spec)
    if len(places) == spec.workers:
        return by_node(places)
    general = topology_for(state, pool, spec, "general", is_general)
    more = _packed(state, pool, general, replace(spec, workers=spec.workers - len(places), workers_min=None))
    if not more:
        return None
    return by_node((*places, *more))


def _in_zone(state: CellState, pool: PoolCapacity, zone: Topology, spec: JobSpec) -> list[WorkerPlace]:
    """All of these workers, or as many as the zone has room for."""
    if not takes_whole_nodes(spec, zone):
        return spread(_room(state, pool, spec, zone), zone, spec, spec.workers)
    gang = Gang(zone, spec)
    room = min(spec.workers, sum(map(gang.room_on, range(len(zone.nodes)))))
    return list(places_on(gang, pack(gang, room))) if room else []


def _packed(state: CellState, pool: PoolCapacity, general: Topology, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """All of these workers in the general pool, or nothing."""
    if spec.resources.gpu_milli >= GPU:
        gang = Gang(general, spec)
        parts = pack(gang, spec.workers)
        return places_on(gang, parts)
    return places_of_gang(_room(state, pool, spec, general), spec, fullest)


def _room(state: CellState, pool: PoolCapacity, spec: JobSpec, part: Topology) -> Room:
    return Room.of(state, pool, spec, numbers_of(pool, part, range(len(part.nodes))))
