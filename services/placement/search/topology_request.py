"""Wishes for a place in the network: all workers within one unit of a level, or each slice of them.

A required wish is never broken. A preferred one is tried, then widened level by level outward, and in the end the gang
goes anywhere, on as few units of its level as possible. Among units that hold it the one with the least room is taken;
ties go to the first in the order of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.placement.fit.fractional_gpu import FractionalGang
from fallow.services.placement.fit.gang_packing import GangPacker, Portion
from fallow.services.placement.fit.min_units import evenly, fewest
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.topology import OUTWARD, Topology
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level, TopologyRequest, Wish, WorkerPlace

Seeker = GangPacker | FractionalGang


def place_wish(
    state: CellState, pool: PoolCapacity, topology: Topology, spec: JobSpec, wish: TopologyRequest
) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of a gang on nodes of this topology as it wishes, or None."""
    gang = seeker_of(state, pool, topology, spec)
    for level in levels_for(wish):
        places = gang.realise(_at(gang, level, wish))
        if places:
            return places
    if wish.wish is Wish.REQUIRED:
        return None
    return gang.realise([(range(len(topology.nodes)), wish.level, spec.workers)])


def seeker_of(state: CellState, pool: PoolCapacity, topology: Topology, spec: JobSpec) -> Seeker:
    """The gang before this topology."""
    if spec.resources.gpu_milli >= GPU:
        return GangPacker(topology, spec)
    return FractionalGang(state, pool, topology, spec)


def fits_anywhere(gang: Seeker) -> bool:
    """Whether all workers find places somewhere, wherever they wish to be."""
    level, left = Level.SUPERSPINE, gang.spec.workers
    for unit in range(len(gang.topology.levels[level].paths)):
        if gang.fits(level, unit, left):
            return True
        left -= gang.room_in(level, unit)
    return False


def levels_for(wish: TopologyRequest) -> tuple[Level, ...]:
    """The levels that may be tried, in their order."""
    first = OUTWARD.index(wish.level)
    return OUTWARD[first : first + 1] if wish.wish is Wish.REQUIRED else OUTWARD[first:]


def _at(gang: Seeker, level: Level, wish: TopologyRequest) -> list[Portion]:
    """How the gang is divided so that the wish is granted at this level; empty where that cannot be."""
    workers, units = gang.spec.workers, gang.topology.levels[level]
    if wish.slice_workers is not None and wish.slice_workers < workers:
        return _sliced(gang, level, wish.slice_workers)
    unit = gang.smallest(level, workers)
    return [] if unit is None else [(units.slots(unit), wish.level, workers)]


def _sliced(gang: Seeker, level: Level, slice_: int) -> list[Portion]:
    """Each slice in one unit of `level`, and all of them in the smallest unit around that holds them so."""
    for outer in OUTWARD[OUTWARD.index(level) :]:
        for unit in gang.units_for(outer, gang.spec.workers):
            portions = _slices_in(gang, gang.topology.levels[outer].slots(unit), level, slice_)
            if portions:
                return portions
    return _slices_in(gang, range(len(gang.topology.nodes)), level, slice_)


def _slices_in(gang: Seeker, slots: range, level: Level, slice_: int) -> list[Portion]:
    """Whole slices evenly over as few units as hold them; what is left of the workers is one smaller slice, the last.

    Where to put the whole ones makes no difference to whether that fits: if there is room for one more it does, and
    if not, each unit has the same left over in any case.
    """
    units, (whole, rest) = gang.topology.levels[level], divmod(gang.spec.workers, slice_)
    room = gang.rooms(level, units.within(slots))
    named = [unit for unit in units.within(slots) if units.named >> unit & 1 and room[unit]]
    gang.topology.effort.looks += len(named)
    slices = {unit: room[unit] // slice_ for unit in named}
    chosen = [unit for unit, _ in fewest(slices, named, whole)]
    if not chosen:
        return []
    many = {unit: count * slice_ for unit, count in evenly(slices, chosen, whole)}
    if rest:
        last = _room_for_rest(room, named, many, rest)
        if last is None:
            return []
        # Last in the order too: it has the last ranks.
        many[last] = many.pop(last, 0) + rest
    nearer = OUTWARD[max(OUTWARD.index(level) - 1, 0)]
    return [(units.slots(unit), nearer, workers) for unit, workers in many.items()]


def _room_for_rest(room: Sequence[int], named: list[int], taken: dict[int, int], rest: int) -> int | None:
    """A unit for the smaller slice: one that has others if possible, with the least room left."""
    left = {unit: room[unit] - taken.get(unit, 0) for unit in named}
    return min(
        (unit for unit in named if left[unit] >= rest),
        key=lambda unit: (unit not in taken, left[unit], unit),
        default=None,
    )
