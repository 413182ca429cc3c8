"""Spread: the workers of a gang are kept apart, so that no failure takes many of them.

They go round the failure domains of the level that the job names (`spread`; nodes where it names none): one to each
before a second to any, always to the emptiest node, and to one without another worker of the gang if there is any.
"""

from __future__ import annotations

from services.placement.policy.best_fit import place_share
from services.placement.policy.fit import Room
from services.placement.policy.ranks import by_node
from shared.cluster.capacity import PoolCapacity
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.cluster.topology import Topology, Units, numbers_of, topology_for
from shared.events.values import GPU, JobSpec, Level, WorkerPlace


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang anywhere in the pool, or None."""
    places = spread(Room.of(state, pool, spec), topology_for(state, pool, spec), spec, spec.workers)
    return by_node(places) if len(places) == spec.workers else None


def spread(room: Room, topology: Topology, spec: JobSpec, workers: int) -> list[WorkerPlace]:
    """Places for so many workers, or for as many as fit; all are taken from the room. The topology holds all nodes of
    the room.
    """
    units = topology.levels[spec.spread or Level.NODE]
    places: list[WorkerPlace] = []
    visited = used = 0
    for rank in range(workers):
        node = _next(room, spec, visited, used)
        if node is None and visited:
            visited = 0
            node = _next(room, spec, visited, used)
        if node is None:
            place = place_share(room, spec, rank, may_break=False) if 0 < spec.resources.gpu_milli < GPU else None
            if place is None:
                return places
            places.append(place)
            continue
        places.append(_take(room, spec, rank, node))
        visited |= _unit_around(room, topology, units, node)
        used |= 1 << room.pool.number(node.id)
    return places


def _next(room: Room, spec: JobSpec, visited: int, used: int) -> Node | None:
    """The emptiest node of a unit that was not visited in this round, one that is not used before one that is."""
    gpus = -(-spec.resources.gpu_milli // GPU)
    node = room.emptiest(spec, gpus, ~(visited | used))
    return node if node is not None else room.emptiest(spec, gpus, ~visited)


def _take(room: Room, spec: JobSpec, rank: int, node: Node) -> WorkerPlace:
    if 0 < spec.resources.gpu_milli < GPU:
        return room.take_share(rank, node, room.unbroken_device(node), spec.resources)
    return room.take_whole(rank, node, spec.resources)


def _unit_around(room: Room, topology: Topology, units: Units, node: Node) -> int:
    return numbers_of(room.pool, topology, units.slots(units.of_slot[topology.slots[node.id]]))
