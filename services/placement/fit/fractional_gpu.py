"""A gang whose workers need a share of one device each, before one topology, while it looks for room.

How many a unit holds is counted: each whole device that is free holds as many shares as go into one, which the units'
ranking by free devices knows at once, and a shared one as many as go into what is left of it. Where CPUs, memory or GPU
types bind as well that is only the most that it could hold, and its nodes are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.services.placement.fit.filling import fill, fullest, places_in, shares_on, together, workers_of
from fallow.services.placement.fit.free_capacity import FreeCapacity, more_that_suit
from fallow.services.placement.fit.gang_packing import Portion
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.masks import each_bit, mask_from
from fallow.shared.cluster.capacity.topology import Topology, numbers_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Level, WorkerPlace


class FractionalGang:
    """A gang of fractional GPUs, which answers the questions of `GangPacker`. The state does not change meanwhile."""

    __slots__ = ("_beside", "_each", "_in_units", "_is_plain", "_pool", "_state", "spec", "topology")

    def __init__(self, state: CellState, pool: PoolCapacity, topology: Topology, spec: JobSpec) -> None:
        self._state, self._pool, self.topology, self.spec = state, pool, topology, spec
        wants = spec.resources
        self._each = GPU // wants.gpu_milli
        """How many workers a whole device holds."""
        self._is_plain = not (wants.cpu_milli or wants.memory_mib) and spec.gpu_type in (None, topology.gpu_type)
        """Whether devices alone decide."""
        self._beside = self._beside_others()
        """How many workers the shared devices of each slot hold; none with none."""
        self._in_units: dict[Level, dict[int, int]] = {}

    def room_in(self, level: Level, unit: int) -> int:
        """How many of its workers a unit holds; no more than the gang has are counted."""
        most = min(self._workers_max(level, unit), self.spec.workers)
        if self._is_plain or not most:
            return most
        room = 0
        for slot in self.topology.levels[level].slots(unit):
            room += self._room_on(slot)
            if room >= most:
                return most
        return room

    def fits(self, level: Level, unit: int, workers: int) -> bool:
        """Whether a unit holds so many of its workers."""
        return self.room_in(level, unit) >= workers

    def rooms(self, level: Level, units: range) -> Sequence[int]:
        """How many workers each of these units holds; the places of all others mean nothing."""
        found = [0] * len(self.topology.levels[level].paths)
        for unit in units:
            found[unit] = self.room_in(level, unit)
        return found

    def smallest(self, level: Level, workers: int) -> int | None:
        """The named unit of a level with the fewest wholly free devices that holds so many workers."""
        return next((unit for unit in self.units_for(level, workers) if self.room_in(level, unit) >= workers), None)

    def units_for(self, level: Level, workers: int) -> Iterator[int]:
        """The named units of a level whose devices hold so many workers, those with the fewest wholly free devices
        first.
        """
        named, ranking = self.topology.levels[level].named, self.topology.ranking(level, 1)
        whole = -(-workers // self._each)
        few = [unit for unit in self._beside_in(level) if ranking.room[unit] < whole]
        few = [unit for unit in few if self._workers_max(level, unit) >= workers]
        if few:
            yield from ranking.tightest(0, mask_from(few, len(ranking.room)) & named)
        yield from ranking.tightest(whole, named)

    def realise(self, portions: Sequence[Portion]) -> tuple[WorkerPlace, ...] | None:
        """The places of the gang when it is divided so, by rank; None where it does not fit."""
        found: list[WorkerPlace] = []
        for slots, _, workers in portions:
            room = FreeCapacity.of(self._state, self._pool, self.spec, numbers_of(self._pool, self.topology, slots))
            runs = fill(room, self.spec, workers, fullest)
            if workers_of(runs) < workers:
                return None
            found += places_in(together(runs), self.spec, len(found))
        return tuple(found)

    def _workers_max(self, level: Level, unit: int) -> int:
        """How many workers the devices of a unit hold."""
        whole = self.topology.ranking(level, 1).room[unit] * self._each
        return whole + self._beside_in(level).get(unit, 0)

    def _room_on(self, slot: int) -> int:
        """How many workers a node holds."""
        most = self.topology.free[slot] * self._each + self._beside.get(slot, 0)
        if self._is_plain or not most:
            return most
        self.topology.effort.looks += 1
        return more_that_suit(self.topology.nodes[slot], self.spec, 0, most)

    def _beside_in(self, level: Level) -> dict[int, int]:
        """How many workers the shared devices of each unit hold; none with none."""
        found = self._in_units.get(level)
        if found is None:
            found, of_slot = self._in_units.setdefault(level, {}), self.topology.levels[level].of_slot
            for slot, many in self._beside.items():
                found[of_slot[slot]] = found.get(of_slot[slot], 0) + many
        return found

    def _beside_others(self) -> dict[int, int]:
        milli, topology, with_room = self.spec.resources.gpu_milli, self.topology, 0
        for share, with_share in self._pool.by_share.items():
            if share >= milli:
                with_room |= with_share
        if not with_room or topology.exclusive:
            return {}
        nodes, ids, slots = self._state.nodes, self._pool.ids, topology.slots
        ours = with_room & numbers_of(self._pool, topology, range(len(topology.nodes)))
        topology.effort.looks += ours.bit_count()
        return {slots[ids[number]]: shares_on(nodes[ids[number]], milli) for number in each_bit(ours)}
