"""E-Binpack: packing at two levels, nodes and groups of nodes.

A job whose workers one node holds goes to the node with the fewest free devices that does; of equals to one in the
fullest leaf group: so small jobs gather on nodes that are in use, in groups that are in use, and whole nodes and whole
groups stay free for large jobs.

A larger one goes to the smallest unit of the network that holds all of it, a high-bandwidth domain before a leaf group,
a leaf group before a spine: within it to as few leaf groups and nodes as possible, the fullest use of each first.
"""

from __future__ import annotations

from fallow.services.placement.fit.filling import fullest, places_of_gang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.fit.gang_packing import GangPacker, fill, places_of_each, places_on
from fallow.services.placement.fit.min_units import Part
from fallow.services.placement.policy.placement_policy import PlacementPolicy
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.topology import OUTWARD, topology_for
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level, WorkerPlace


def place_gang(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang, or None. Shares of devices go to the shared device with the least room that
    fits, as with best fit.
    """
    if spec.resources.gpu_milli < GPU:
        return places_of_gang(FreeCapacity.of(state, pool, spec), spec, fullest)
    gang = GangPacker(topology_for(state, pool, spec), spec)
    parts = pack(gang, spec.workers)
    return places_on(gang, parts) if parts else None


def place_alone(state: CellState, pool: PoolCapacity, spec: JobSpec) -> WorkerPlace | None:
    """A place for the only worker of a job of whole GPUs: that of `place_gang`."""
    gang = GangPacker(topology_for(state, pool, spec), spec)
    slot = gang.tightest_node(1)
    return None if slot is None else places_of_each(gang, [(slot, 1)])[0]


def place_alike(state: CellState, pool: PoolCapacity, spec: JobSpec, most: int) -> list[WorkerPlace]:
    """Places for so many jobs of this one worker of whole GPUs, or for the first of them: those of `place_alone`, if
    each was started before the next.

    By what the first ones take, the tightest node only becomes tighter, and the fullest leaf fuller. Which leaf is the
    fullest for nodes that are emptier depends on what they took: for these, ask again.
    """
    gang, parts = GangPacker(topology_for(state, pool, spec), spec), list[Part]()
    if gang.looks_at_islands:
        slot = gang.tightest_node(1)
        return [] if slot is None else places_of_each(gang, [(slot, 1)])
    free = gang.topology.free
    for slot in gang.tightest_nodes(1):
        if parts and free[slot] != free[parts[0][0]]:
            break
        here = min(gang.room_on(slot), most)
        parts.append((slot, here))
        most -= here
        if not most:
            break
    return places_of_each(gang, parts)


def pack(gang: GangPacker, workers: int) -> list[Part]:
    """On which nodes (slots) so many of its workers go; empty where they do not fit."""
    slot = gang.tightest_node(workers)
    if slot is not None:
        return [(slot, workers)]
    if workers == 1:
        return []
    for level in OUTWARD[1:]:
        unit = gang.smallest(level, workers)
        if unit is not None:
            units = gang.topology.levels[level]
            return fill(gang, units.slots(unit), min(level, Level.LEAF, key=OUTWARD.index), workers)
    return fill(gang, range(len(gang.topology.nodes)), Level.LEAF, workers)


POLICY = PlacementPolicy(
    name="e-binpack",
    what_for="Large gangs that talk much, and nodes that say where they are in the network.",
    gang=place_gang,
    alone=place_alone,
    alike=place_alike,
    packs=True,
    learns=False,
)
