"""Which places are kept for an owner's job that waits.

One that would fit now keeps places that hold it. One that does not keeps those of its workers that fit, and what is
free on the nodes where most of it is free, so that these become empty for it one by one, while others go on to start
elsewhere. Only nodes count that the job could use and that are open. A look for places tells what it went by, so that
one knows whether a node that has changed since would make a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.services.placement.fit.whole_units import is_in_units
from fallow.services.placement.owners.room_to_come import Ground, Plan, may_be_held_for_ever
from fallow.services.placement.owners.units_to_come import plan_in_units
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import marks_of, needs_of
from fallow.shared.cluster.model.node import lowest_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import KeptPlace
from fallow.shared.events.fields.values import GPU, JobSpec

NO_PLAN = Plan([], [], 0, 0, 0, None)
"""No pool has any node for the job."""


class Free(NamedTuple):
    """What is free on some nodes of a pool: by how many whole devices, and the nodes with room on shared ones."""

    by_free: Mapping[int, int]
    shared: int

    @classmethod
    def on(cls, pool: PoolCapacity, nodes: int) -> Free:
        """What is free on these now."""
        by_free = {free: here for free, mask in pool.by_free.items() if free and (here := mask & nodes)}
        shared = 0
        for mask in pool.by_share.values():
            shared |= mask & nodes
        return cls(by_free, shared)


class Look(NamedTuple):
    """What a look for places in a pool went by: the nodes `among` which they were looked for, and those `chosen`. One
    that found places for all came by nodes with so many whole free devices at least, the fewest first, up to the `last`
    one (its free devices, and its number); where that is None, all others were looked at in vain. With `is_ranked` the
    room on any node of the pool may decide.
    """

    pool: str
    among: int
    chosen: int
    gpus: int
    last: tuple[int, int] | None
    holds_all: bool
    is_ranked: bool

    @property
    def concerns(self) -> tuple[str, int]:
        """The pool, and its nodes by which it went."""
        return self.pool, -1 if self.is_ranked else self.among

    def would_differ(self, changed: int, free: Free) -> bool:
        """Whether it could find other places now that these nodes are others, on which this is `free`."""
        if self.is_ranked:
            return bool(changed)
        here = changed & self.among
        if not here or here & self.chosen:
            return bool(here)
        if self.last is None:
            return bool(here & free.shared) or any(here & mask for mask in free.by_free.values())
        last_free, last_number = self.last
        before = (1 << last_number) - 1
        return any(
            here & mask if has < last_free else here & mask & before
            for has, mask in free.by_free.items()
            if self.gpus <= has <= last_free
        )


class Found(NamedTuple):
    """The places for a job, the looks that found them, and `more` places beside those on whose nodes runs may have no
    end.
    """

    places: tuple[KeptPlace, ...]
    looks: tuple[Look, ...]
    more: tuple[KeptPlace, ...] = ()

    @property
    def holds_all(self) -> bool:
        """Whether the job fits now."""
        return any(look.holds_all for look in self.looks)


def pick(state: CellState, spec: JobSpec, reach: Reach, milli: int, since_ms: int | None = None) -> Found:
    """The places that are kept for a job as it stands in line, of one GPU type, with so much of them at the most: in
    the first pool that holds all of it now, or else in that with most of it. `reach` is where it could be. Runs that
    began before `since_ms` may have no end: where such hold a node, places are kept as well as if nothing more came
    there.
    """
    plan, looks = _pick(state, spec, reach)
    places = tuple(_cut([*plan.fit, *plan.rest], milli))
    if since_ms is None or not plan.left:
        return Found(places, looks)
    nodes = dict.fromkeys(place.node for place in plan.rest)
    if not any(may_be_held_for_ever(state, state.nodes[node_id], since_ms) for node_id in nodes):
        return Found(places, looks)
    other, again = _pick(state, spec, reach, since_ms)
    more = tuple(_beside([*_cut([*other.fit, *other.rest], milli)], places))
    chosen = {look.pool: look.chosen for look in again}
    joined = [look._replace(chosen=look.chosen | chosen.get(look.pool, 0)) for look in looks]
    return Found(places, tuple(joined), more)


def _beside(places: Sequence[KeptPlace], others: Sequence[KeptPlace]) -> Iterator[KeptPlace]:
    """What these places have of each node beyond the others."""
    devices, cpu, memory, shares = dict[str, int](), dict[str, int](), dict[str, int](), dict[tuple[str, int], int]()
    for place in others:
        node = place.node
        devices[node] = devices.get(node, 0) | place.devices
        cpu[node], memory[node] = cpu.get(node, 0) + place.cpu_milli, memory.get(node, 0) + place.memory_mib
        shares[node, place.device] = shares.get((node, place.device), 0) + place.share_milli
    for place in places:
        node, share = place.node, (place.node, place.device)
        cpu_milli, memory_mib = (min(place.cpu_milli, cpu.get(node, 0)), min(place.memory_mib, memory.get(node, 0)))
        share_milli = min(place.share_milli, shares.get(share, 0))
        cpu[node], memory[node] = cpu.get(node, 0) - cpu_milli, memory.get(node, 0) - memory_mib
        shares[share] = shares.get(share, 0) - share_milli
        rest = place._replace(
            devices=place.devices & ~devices.get(node, 0),
            share_milli=place.share_milli - share_milli,
            cpu_milli=place.cpu_milli - cpu_milli,
            memory_mib=place.memory_mib - memory_mib,
        )
        if rest.milli:
            yield rest


def _pick(state: CellState, spec: JobSpec, reach: Reach, since_ms: int | None = None) -> tuple[Plan, tuple[Look, ...]]:
    """What is kept in the first pool that holds all of the job now, or else in that where the most comes together."""
    best, looks = NO_PLAN, list[Look]()
    for name, mask in reach.items():
        plan, look = _pick_in(Ground(state, state.pools[name], spec, since_ms), name, mask)
        looks.append(look)
        if look.holds_all or best is NO_PLAN or _worth(plan) > _worth(best):
            best = plan
        if look.holds_all:
            break
    return best, tuple(looks)


def _worth(plan: Plan) -> tuple[bool, tuple[int, int]]:
    """Order of plans: those that gain room as jobs end first, then by what is free."""
    return bool(plan.waiting), plan.gain


def _cut(places: Sequence[KeptPlace], milli: int) -> Iterator[KeptPlace]:
    """The first places, until they have so much, and no more than that."""
    for place in places:
        if milli <= 0:
            return
        if place.milli > milli:
            place = _of_size(place, milli)  # noqa: PLW2901
        milli -= place.milli
        if place.milli:
            yield place


def _of_size(place: KeptPlace, milli: int) -> KeptPlace:
    """This place with so much of it at the most: as many of its devices as that is, or so much of its share of one."""
    devices, share_milli = lowest_of(place.devices, milli // GPU), min(place.share_milli, milli)
    rest = (place.cpu_milli, place.memory_mib, place.is_alone)
    return KeptPlace(place.node, place.pool, devices, place.device, share_milli, *rest)


def _pick_in(ground: Ground, name: str, reach: int) -> tuple[Plan, Look]:
    """The places in one pool among these nodes."""
    state, pool, spec, _ = ground
    is_ranked, plan = is_in_units(spec), Plan([], [], spec.workers, spec.workers, 0, None)
    if pool.free_whole or pool.by_share:
        needs = needs_of(state, pool, spec)
        among = reach if needs is None else reach & marks_of(state, pool).members(state, needs)
        plan = plan_in_units(ground, among) if is_ranked else ground.plan(among, spec.workers)
    chosen = 0
    for place in (*plan.fit, *plan.rest):
        chosen |= 1 << pool.number(place.node)
    gpus = spec.resources.gpu_milli // GPU
    return plan, Look(name, reach, chosen, gpus, plan.last, not plan.left, is_ranked)
