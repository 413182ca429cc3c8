"""A gang whose workers need a share of one device each, before one topology, while it looks for room.

How many a unit holds is found by placing them there on trial: shares of devices follow from no ranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.placement.policy.best_fit import place_worker
from services.placement.policy.fit import Room
from services.placement.policy.one_by_one import place_workers
from services.placement.policy.packing import Portion
from services.placement.policy.ranks import by_node
from shared.cluster.capacity import PoolCapacity
from shared.cluster.state import CellState
from shared.cluster.topology import Topology, numbers_of
from shared.events.values import JobSpec, Level, WorkerPlace


class ShareGang:
    """The same questions as a gang of whole GPUs answers (`Gang`). The state does not change meanwhile."""

    __slots__ = ("_known", "_pool", "_state", "spec", "topology")

    def __init__(self, state: CellState, pool: PoolCapacity, topology: Topology, spec: JobSpec) -> None:
        self._state, self._pool, self.topology, self.spec = state, pool, topology, spec
        self._known: dict[tuple[Level, int], int] = {}

    def room_in(self, level: Level, unit: int) -> int:
        """How many of its workers a unit holds; no more than the gang has are counted."""
        known = self._known.get((level, unit))
        if known is None:
            slots = self.topology.levels[level].slots(unit)
            known = self._known[level, unit] = len(self._placed(slots, self.spec.workers))
        return known

    def rooms(self, level: Level, units: range) -> Sequence[int]:
        """The same for these units; the places of all others mean nothing."""
        found = [0] * len(self.topology.levels[level].paths)
        for unit in units:
            found[unit] = self.room_in(level, unit)
        return found

    def smallest(self, level: Level, workers: int) -> int | None:
        """The named unit of a level with the fewest wholly free devices that holds so many workers."""
        return next((unit for unit in self.units_for(level, workers) if self.room_in(level, unit) >= workers), None)

    def units_for(self, level: Level, _workers: int) -> Iterator[int]:
        """The named units of a level, those with the fewest wholly free devices first."""
        return self.topology.ranking(level, 1).tightest(0, self.topology.levels[level].named)

    def realise(self, portions: Sequence[Portion]) -> tuple[WorkerPlace, ...] | None:
        """The places of the gang when it is divided so, by rank; None where it does not fit."""
        found: list[WorkerPlace] = []
        for slots, _, workers in portions:
            places = self._placed(slots, workers)
            if len(places) < workers:
                return None
            found += by_node(places, len(found))
        return tuple(found)

    def _placed(self, slots: range, workers: int) -> list[WorkerPlace]:
        room = Room.of(self._state, self._pool, self.spec, numbers_of(self._pool, self.topology, slots))
        return place_workers(room, self.spec, workers, place_worker)
