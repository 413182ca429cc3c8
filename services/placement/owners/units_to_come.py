"""In which units of the network places are kept for a job that requires one: for each of its slices in the unit with
the most room for it. A unit may have several slices; one that will never hold a slice more gets none.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from fallow.services.placement.owners.room_to_come import Ground, Plan
from fallow.shared.cluster.capacity.topology import numbers_of, topology_for
from fallow.shared.events.fields.values import GPU

Key = tuple[int, int, int, int, int]
"""What a slice more would gain in a unit, the most first; whether that is a guess, and the unit in its order."""

GAIN_MAX = 1 << 62


def plan_in_units(ground: Ground, among: int) -> Plan:
    """What is kept of these nodes for the job, each of its slices in one unit."""
    spec = ground.spec
    assert spec.topology is not None, "it wishes for that"
    size = min(spec.topology.slice_workers or spec.workers, spec.workers)
    whole, last = divmod(spec.workers, size)
    units = _Units(ground, among)
    missing = size * units.add(size, whole) + (last * units.add(last, 1) if last else 0)
    return units.joined(missing)


class _Units:
    """The units while slices come to them: how many workers each has, and what is kept of it."""

    def __init__(self, ground: Ground, among: int) -> None:
        self._ground = ground
        wish, pool = ground.spec.topology, ground.pool
        assert wish is not None, "it wishes for that"
        topology = topology_for(ground.state, pool, ground.spec)
        units, self._room = topology.levels[wish.level], topology.ranking(wish.level, 1).room
        self._shared = 0
        for mask in pool.by_share.values():
            self._shared |= mask & among
        self._nodes: dict[int, int] = {}
        for unit in sorted(range(len(self._room)), key=lambda unit: (-self._room[unit], unit)):
            here = numbers_of(pool, topology, units.slots(unit)) & among if units.named >> unit & 1 else 0
            if here:
                self._nodes[unit] = here
        self._plans: dict[int, tuple[int, Plan]] = {}

    def add(self, size: int, slices: int) -> int:
        """Choose units for so many slices of this size. For how many there are none."""
        order = {unit: at for at, unit in enumerate(self._nodes)}
        heap, found = [self._guess(unit, size, at) for unit, at in order.items()], dict[int, Plan]()
        in_order = [*self._nodes]
        heapify(heap)
        while heap and slices:
            whole, shared, is_guess, at, workers = heappop(heap)
            unit, has_more = in_order[at], bool(whole or shared)
            if is_guess and not has_more:
                break  # nothing is free in any of them
            if not (is_guess or has_more) and found[unit].unplanned:
                continue  # a slice that gains no GPUs may come to nodes that are kept, with its CPUs and memory
            if is_guess:
                plan = self._ground.plan(self._nodes[unit], workers + size)
                if self._ground.could_come(self._nodes[unit], plan):
                    found[unit] = plan
                    heappush(heap, self._gain(unit, plan, at, workers))
                continue
            self._plans[unit] = (workers + size, found[unit])
            slices -= 1
            if slices:
                heappush(heap, self._guess(unit, size, at))
        return slices

    def _gain(self, unit: int, plan: Plan, at: int, workers: int) -> Key:
        before = self._plans[unit][1].gain if unit in self._plans else (0, 0)
        whole, shared = plan.gain
        return -(whole - before[0]), -(shared - before[1] if plan.left else GAIN_MAX), 0, at, workers

    def _guess(self, unit: int, size: int, at: int) -> Key:
        """The most that a slice more could gain there."""
        spec = self._ground.spec
        workers, gained = 0, 0
        if unit in self._plans:
            workers, plan = self._plans[unit]
            gained = plan.gain[0]
        most = size * (spec.resources.gpu_milli // GPU)
        # The index of an exclusive job omits busy nodes, so it is no upper bound here.
        if not spec.exclusive:
            most = min(most, self._room[unit] - gained)
        may_all_fit = most == size * (spec.resources.gpu_milli // GPU)
        is_more = may_all_fit or bool(self._nodes[unit] & self._shared)
        return -most, -GAIN_MAX if is_more else 0, 1, at, workers

    def joined(self, missing: int) -> Plan:
        """What is kept in all units, where there are none for so many workers."""
        plans = [plan for _, plan in self._plans.values()]
        waiting = 0
        for plan in plans:
            waiting |= plan.waiting
        return Plan(
            [place for plan in plans for place in plan.fit],
            [place for plan in plans for place in plan.rest],
            missing + sum(plan.left for plan in plans),
            missing + sum(plan.unplanned for plan in plans),
            waiting,
            None,
        )
