"""What there is and what is missing for a job that does not fit, in numbers, pool by pool and unit by unit.

Nothing of this is kept or logged: it is worked out when a reader asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest

from fallow.services.placement.search.topology_request import Seeker, seeker_of
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.topology import topology_for
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import rooms
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Wish

UNITS_MAX = 8


@dataclass(frozen=True, slots=True)
class UnitRoom:
    """What one unit of the network could give: it holds `workers` of the `wanted` now, and `workers_max` when nothing
    else runs there.
    """

    level: Level
    name: str
    workers: int
    wanted: int
    workers_max: int
    takes_nodes: bool

    @property
    def to_free(self) -> str | None:
        """For people: what would have to become free here; None where it fits by now."""
        missing = self.wanted - self.workers
        if missing <= 0:
            return None
        what = f"whole {'node' if missing == 1 else 'nodes'}" if self.takes_nodes else _workers(missing)
        return f"{'' if self.takes_nodes else 'room for '}{missing} more {what} in {self.name}"

    @property
    def text(self) -> str:
        """For people."""
        what = "whole nodes" if self.takes_nodes else "workers"
        if self.workers_max < self.wanted:
            return f"{self.name} holds {self.workers_max} of {self.wanted} {what} at most"
        verb = "has" if self.takes_nodes else "has room for"
        return f"{self.name} {verb} {self.workers} of {self.wanted} {what}"


@dataclass(frozen=True, slots=True)
class PoolShortfall:
    """What one pool could give. `units` are those with the most room first; `workers` what all nodes together hold, as
    far as they may be used, wherever they are; `left_milli` what the tenant may still use there, None without a limit.
    With `is_in_one` all of it must be in one unit.
    """

    pool: str
    free_gpus: int
    wanted_gpus_milli: int
    workers: int
    wanted: int
    units: tuple[UnitRoom, ...]
    left_milli: int | None
    is_in_one: bool = False

    @property
    def to_free(self) -> str | None:
        """For people: what would have to become free at least, so that the job fits here; None where it fits by now, or
        never would.
        """
        if not self.is_in_one:
            missing = self.wanted - self.workers
            return f"room for {missing} more {_workers(missing)} in {self.pool}" if missing > 0 else None
        able = [unit for unit in self.units if unit.workers_max >= unit.wanted]
        return able[0].to_free if able else None

    @property
    def texts(self) -> list[str]:
        """For people, the whole before its parts."""
        gpus = _gpus(self.wanted_gpus_milli)
        room = f"room for {self.workers} of {self.wanted} workers"
        found = [f"{self.pool} has {self.free_gpus} free GPUs, the job needs {gpus}; {room}"]
        if self.left_milli is not None and self.left_milli < self.wanted_gpus_milli:
            found.append(f"the tenant may use {_gpus(self.left_milli)} GPUs more, the job needs {gpus}")
        return found + [unit.text for unit in self.units]


def shortfall(state: CellState, spec: JobSpec, units_max: int = UNITS_MAX) -> list[PoolShortfall]:
    """What each pool that the job accepts could give it now, in the job's order of pools. Pools that are not there are
    left out; where it needs no GPUs, all.
    """
    pools = state.pools if spec.resources.gpu_milli else {}
    names = [name for name in spec.pools or sorted(pools) if name in pools]
    return [_of_pool(state, name, pools[name], spec, units_max) for name in names]


def _of_pool(state: CellState, name: str, pool: PoolCapacity, spec: JobSpec, units_max: int) -> PoolShortfall:
    topology = topology_for(state, pool, spec)
    gang = seeker_of(state, pool, topology, spec)
    level = spec.topology.level if spec.topology is not None else Level.LEAF
    superspines = topology.levels[Level.SUPERSPINE]
    everywhere = gang.rooms(Level.SUPERSPINE, range(len(superspines.paths)))
    return PoolShortfall(
        pool=name,
        free_gpus=pool.free_whole,
        wanted_gpus_milli=spec.gpus_milli,
        workers=sum(everywhere),
        wanted=spec.workers,
        units=_units(gang, level, units_max),
        left_milli=_left(state, spec, topology.gpu_type),
        is_in_one=_is_in_one(spec),
    )


def _is_in_one(spec: JobSpec) -> bool:
    wish = spec.topology
    return wish is not None and wish.wish is Wish.REQUIRED and wish.slice_workers is None


def _units(gang: Seeker, level: Level, most: int) -> tuple[UnitRoom, ...]:
    """The named units with the most room, of equals the first in the order of the network."""
    units, topology = gang.topology.levels[level], gang.topology
    wanted = gang.spec.topology.slice_workers if gang.spec.topology is not None else None
    room = gang.rooms(level, range(len(units.paths)))
    named = [unit for unit in range(len(units.paths)) if units.named >> unit & 1]
    gpus = max(gang.spec.resources.gpu_milli, GPU) // GPU
    return tuple(
        UnitRoom(
            level=level,
            name=units.paths[unit][-1],
            workers=room[unit],
            wanted=min(wanted or gang.spec.workers, gang.spec.workers),
            workers_max=sum(
                topology.specs[slot].gpus * GPU // gang.spec.resources.gpu_milli for slot in units.slots(unit)
            ),
            takes_nodes=all(topology.specs[slot].gpus == gpus for slot in units.slots(unit)),
        )
        for unit in nsmallest(most, named, key=lambda unit: (-room[unit], unit))
    )


def _left(state: CellState, spec: JobSpec, gpu_type: str | None) -> int | None:
    """How much the tenant may use more before it or one above it is at a limit, or may borrow no further."""
    left = [room for _, room in rooms(state.tree, (spec.tenant, spec.gpu_type or gpu_type or ""))]
    return min([max(room, 0) for room in left if room is not None], default=None)


def _gpus(milli: int) -> str:
    """Whole GPUs where they are whole."""
    return str(milli // GPU) if milli % GPU == 0 else f"{milli / GPU:.2f}"


def _workers(count: int) -> str:
    return "worker" if count == 1 else "workers"
