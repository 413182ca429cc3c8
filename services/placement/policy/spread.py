"""Spread: the workers of a gang are kept apart, so that no failure takes many of them.

They go round the failure domains of the level that the job names (`spread`; nodes where it names none): one to each
before a second to any, always to the emptiest node, and to one without another worker of the gang if there is any.
"""

from __future__ import annotations

from fallow.services.placement.fit.filling import count_room, fill_shares, places_in
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.ranks import by_node
from fallow.services.placement.policy.placement_policy import PlacementPolicy, first_of
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.masks import mask_from
from fallow.shared.cluster.capacity.topology import Topology, Units, numbers_of, topology_for
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level, WorkerPlace

LOOKS_TO_PLACE = 20
"""To place a worker by itself takes so long as to look at so many nodes."""


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang anywhere in the pool, or None."""
    room = FreeCapacity.of(state, pool, spec)
    if count_room(room, spec, spec.workers) < spec.workers:
        return None
    places = spread(room, topology_for(state, pool, spec), spec, spec.workers)
    return by_node(places) if len(places) == spec.workers else None


def spread(room: FreeCapacity, topology: Topology, spec: JobSpec, workers: int) -> list[WorkerPlace]:
    """Places for so many workers, or for as many as fit; all are taken from the room. The topology holds all nodes of
    the room.
    """
    units = topology.levels[spec.spread or Level.NODE]
    places: list[WorkerPlace] = []
    used = 0
    while len(places) < workers:
        here = _round(room, topology, units, spec, range(len(places), workers), used)
        if not here:
            break
        room.pool.effort.looks += LOOKS_TO_PLACE * len(here)
        used |= mask_from((room.pool.number(place.node) for place in here), len(room.pool.ids))
        places += here
    if len(places) < workers:
        # No whole device is left anywhere: rather shares beside others, wherever there are some.
        places += places_in(fill_shares(room, spec, workers - len(places)), spec, len(places))
    return places


def _round(
    room: FreeCapacity, topology: Topology, units: Units, spec: JobSpec, ranks: range, used: int
) -> list[WorkerPlace]:
    """A worker to each unit that has room for one, or to the first that these ranks suffice for: to the emptiest nodes
    first, to those that are used already last. What one takes makes no other node emptier.
    """
    gpus, visited, places = -(-spec.resources.gpu_milli // GPU), 0, list[WorkerPlace]()
    for among in (~used, used):
        for free in sorted([free for free in room.by_free if free >= gpus], reverse=True):
            mask = room.by_free.get(free, 0) & among & ~visited
            while mask:
                node = room.first_suitable(mask, spec)
                if node is None:
                    break
                places.append(room.take(ranks[len(places)], node, spec.resources))
                if len(places) == len(ranks):
                    return places
                unit = _unit_around(room, topology, units, node)
                visited |= unit
                mask &= ~unit
    return places


def _unit_around(room: FreeCapacity, topology: Topology, units: Units, node: Node) -> int:
    return numbers_of(room.pool, topology, units.slots(units.of_slot[topology.slots[node.id]]))


POLICY = PlacementPolicy(
    name="spread",
    what_for="Jobs that a single failure must not take many workers of.",
    gang=place_gang,
    alone=first_of(place_gang),
    learns=False,
)
