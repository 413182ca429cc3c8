"""Which places are kept for an owner's job that waits.

One that would fit now keeps places that hold it. One that does not keeps what is free on the nodes where most of it is
free, so that these become empty for it one by one, while others go on to start elsewhere. Only nodes count that the job
could use and that are open. A look for places tells what it went by, so that one knows whether a node that has changed
since would make a difference.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from services.placement.policy.ever import Reach
from services.placement.policy.filling import fill, fullest, workers_of
from services.placement.policy.fit import Room, more_that_suit
from services.placement.policy.islands import devices_for
from shared.cluster.capacity import PoolCapacity
from shared.cluster.kept_places import KeptPlace
from shared.cluster.marks import allowed, marks_of, needs_of
from shared.cluster.masks import each_bit
from shared.cluster.node import Node, lowest_of, mask_of
from shared.cluster.state import CellState
from shared.cluster.topology import numbers_of, topology_for
from shared.events.value import replace
from shared.events.values import GPU, JobSpec, Wish


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


def pick(state: CellState, spec: JobSpec, reach: Reach, milli: int, since_ms: int | None = None) -> Found:
    """The places that are kept for a job as it stands in line, of one GPU type, with so much of them at the most: in
    the first pool that holds all of it now, or else in that with most of it. `reach` is where it could be. Runs that
    began before `since_ms` may have no end.
    """
    found = _pick(state, spec, reach, milli)
    if since_ms is None or any(look.holds_all for look in found.looks):
        return found
    for number, look in enumerate(found.looks):
        more = tuple(_cut(_more(state, look, spec, found.places, since_ms), milli))
        if more:
            pool = state.pools[look.pool]
            chosen = look.chosen | mask_of(tuple(pool.number(place.node) for place in more))
            looks = [*found.looks]
            looks[number] = look._replace(chosen=chosen)
            return Found(found.places, tuple(looks), more)
    return found


def _more(
    state: CellState, look: Look, spec: JobSpec, places: Sequence[KeptPlace], since_ms: int
) -> Sequence[KeptPlace]:
    """What is free in a pool on the nodes without such runs, instead of those of these places that such runs hold."""
    gpus, pool, on = spec.resources.gpu_milli // GPU, state.pools[look.pool], {place.node: None for place in places}
    nodes = [state.nodes[node_id] for node_id in on]
    held = [node for node in nodes if node.pool == look.pool and node.free.bit_count() < gpus]
    held = [node for node in held if _may_be_held_for_ever(state, node, since_ms)]
    if not held:
        return ()
    workers = min(spec.workers, sum(max(1, node.spec.gpus // gpus) for node in held))
    among, needs = look.among, needs_of(state, pool, spec)
    among = among if needs is None else among & marks_of(state, pool).members(state, needs)
    if look.is_ranked:
        among, workers = _in_best_unit_beside(state, pool, spec, among, since_ms, look.chosen), spec.workers
    return _emptiest(state, pool, spec, among, workers, on, since_ms)


def _may_be_held_for_ever(state: CellState, node: Node, since_ms: int) -> bool:
    """Whether a run is there that began before that, and that no limit of its own ends."""
    jobs = [state.jobs[job_id] for job_id in node.jobs if job_id in state.jobs]
    return any(job.spec.max_run_ms is None and job.started_ms is not None and job.started_ms < since_ms for job in jobs)


def _in_best_unit_beside(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int, since_ms: int, chosen: int
) -> int:
    """Those of these nodes without such runs that are in the one unit with the most free devices, of the units beside
    the `chosen` nodes that hold all of the job on these.
    """
    gpus, turned = spec.resources.gpu_milli // GPU, 0
    for number in each_bit(among & ~chosen):
        if not _may_be_held_for_ever(state, state.nodes[pool.ids[number]], since_ms):
            turned |= 1 << number
    for unit in _units_by_room(state, pool, spec):
        if not unit & chosen:
            nodes = [state.nodes[pool.ids[number]] for number in each_bit(unit & turned)]
            if sum((node.all_devices & ~node.failed).bit_count() // gpus for node in nodes) >= spec.workers:
                return unit & turned
    return 0


def _units_by_room(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Iterator[int]:
    """The nodes of each unit that has a name, of the level that the job requires: the most free devices first."""
    assert spec.topology is not None, "it wishes for that"
    topology = topology_for(state, pool, spec)
    units, room = topology.levels[spec.topology.level], topology.ranking(spec.topology.level, 1).room
    for unit in sorted(range(len(room)), key=lambda unit: (-room[unit], unit)):
        if units.named >> unit & 1:
            yield numbers_of(pool, topology, units.slots(unit))


def _pick(state: CellState, spec: JobSpec, reach: Reach, milli: int) -> Found:
    best, looks, pools = list[KeptPlace](), list[Look](), state.pools
    for name, mask in reach.items():
        found, look = _pick_in(state, pools[name], name, spec, mask)
        looks.append(look)
        if look.holds_all or not best or _milli_of(found) > _milli_of(best):
            best = found
        if look.holds_all:
            break
    return Found(tuple(_cut(best, milli)), tuple(looks))


def _milli_of(places: Sequence[KeptPlace]) -> int:
    return sum(place.milli for place in places)


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
    """The same with so much of it at the most: as many of its devices as that is, or so much of its share of one."""
    devices, share_milli = lowest_of(place.devices, milli // GPU), min(place.share_milli, milli)
    rest = (place.cpu_milli, place.memory_mib, place.is_alone)
    return KeptPlace(place.node, place.pool, devices, place.device, share_milli, *rest)


def _pick_in(
    state: CellState, pool: PoolCapacity, name: str, spec: JobSpec, reach: int
) -> tuple[list[KeptPlace], Look]:
    """The places in one pool among these nodes."""
    is_ranked, found, last, left = _is_in_one_unit(spec), list[KeptPlace](), None, spec.workers
    gpus = spec.resources.gpu_milli // GPU
    if pool.free_whole or pool.by_share:
        needs = needs_of(state, pool, spec)
        among = reach if needs is None else reach & marks_of(state, pool).members(state, needs)
        if is_ranked:
            among = _in_best_unit(state, pool, spec, among)
        if gpus:
            usable = allowed(state, pool, spec)
            found, last = _whole_devices(state, pool, spec, among if usable is None else among & usable)
            left -= sum(place.devices.bit_count() for place in found) // gpus
            found += _emptiest(state, pool, spec, among, left, {place.node for place in found}) if left else []
        else:
            found, left = _shares(state, pool, spec, among)
            found += _emptiest_devices(state, pool, spec, among, left, {place.node for place in found}) if left else []
    chosen = 0
    for place in found:
        chosen |= 1 << pool.number(place.node)
    return found, Look(name, reach, chosen, gpus, last, not left, is_ranked)


def _whole_devices(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int
) -> tuple[list[KeptPlace], tuple[int, int] | None]:
    """Places for as many workers as fit, each of whole devices, on the nodes with the fewest free devices first; and
    the last of these nodes, where they are places for all.
    """
    left, found = spec.workers, list[KeptPlace]()
    gpus = spec.resources.gpu_milli // GPU
    for free in sorted(pool.by_free):
        mask = pool.by_free[free] & among if free >= gpus else 0
        for number in each_bit(mask):
            node = state.nodes[pool.ids[number]]
            here = min(more_that_suit(node, spec, 0, left), free // gpus)
            if here:
                found.append(_place(node, spec, here, _devices_on(node, gpus, here)))
                left -= here
                if not left:
                    return found, (free, number)
    return found, None


def _devices_on(node: Node, gpus: int, workers: int) -> int:
    """The devices of so many workers that come to this node together."""
    if len(node.spec.islands) > 1 or len(node.spec.nics) > 1:
        return sum(mask_of(devices) for devices in devices_for(node.free, node.spec, gpus, workers))
    return lowest_of(node.free, gpus * workers)


def _place(node: Node, spec: JobSpec, workers: int, devices: int) -> KeptPlace:
    wants = spec.resources
    rest = (wants.cpu_milli * workers, wants.memory_mib * workers, spec.exclusive)
    return KeptPlace(node.spec.id, node.pool, devices, 0, 0, *rest)


def _shares(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> tuple[list[KeptPlace], int]:
    """Places for workers that need a share of a device each, as many as fit, and for how many there are none."""
    alone, wants = replace(spec, workers=1, workers_min=None, topology=None), spec.resources
    runs = fill(Room.of(state, pool, spec, among), alone, spec.workers, fullest)
    on: dict[str, list[tuple[int, int]]] = {}
    for node_id, (device, *_), many in runs:
        on.setdefault(node_id, []).append((device, many))
    found = []
    for node_id, here in on.items():
        for device, many in here:
            rest = (wants.cpu_milli * many, wants.memory_mib * many, spec.exclusive)
            found.append(KeptPlace(node_id, state.nodes[node_id].pool, 0, device, wants.gpu_milli * many, *rest))
    return found, spec.workers - workers_of(runs)


def _is_in_one_unit(spec: JobSpec) -> bool:
    """Whether all of the job must be in one unit of the network."""
    wish = spec.topology
    return wish is not None and wish.wish is Wish.REQUIRED and (wish.slice_workers or spec.workers) >= spec.workers


def _in_best_unit(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> int:
    """Those of these nodes that are in the one unit with the most free devices; the job must be in one."""
    return next((here for unit in _units_by_room(state, pool, spec) if (here := unit & among)), among)


def _emptiest(
    state: CellState,
    pool: PoolCapacity,
    spec: JobSpec,
    among: int,
    workers: int,
    on: Container[str],
    since_ms: int | None = None,
) -> list[KeptPlace]:
    """What is free of the nodes with the most free devices, for workers that fit nowhere now: without those that runs
    from before `since_ms` may hold for ever.
    """
    wants, found = spec.resources, list[KeptPlace]()
    gpus = wants.gpu_milli // GPU
    for free in sorted((free for free in pool.by_free if free), reverse=True):
        for number in each_bit(pool.by_free[free] & among):
            node = state.nodes[pool.ids[number]]
            if node.spec.id in on or (since_ms is not None and _may_be_held_for_ever(state, node, since_ms)):
                continue
            here = min(workers, max(1, node.spec.gpus // gpus))
            devices = lowest_of(node.free, here * gpus)
            cpu = min(wants.cpu_milli * here, node.spec.cpu_milli - node.cpu_used)
            memory = min(wants.memory_mib * here, node.spec.memory_mib - node.memory_used)
            found.append(KeptPlace(node.spec.id, node.pool, devices, 0, 0, cpu, memory, spec.exclusive))
            workers -= here
            if not workers:
                return found
    return found


def _emptiest_devices(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int, workers: int, on: Container[str]
) -> list[KeptPlace]:
    """The same for workers that need a share of a device: what is free of the shared devices with the most room."""
    wants, found = spec.resources, list[KeptPlace]()
    for free_milli in sorted(pool.by_share, reverse=True):
        for number in each_bit(pool.by_share[free_milli] & among):
            node = state.nodes[pool.ids[number]]
            if node.spec.id in on:
                continue
            able = [
                device for device, free in node.shares.items() if free == free_milli and not node.failed >> device & 1
            ]
            cpu = min(wants.cpu_milli, node.spec.cpu_milli - node.cpu_used)
            memory = min(wants.memory_mib, node.spec.memory_mib - node.memory_used)
            milli = min(free_milli, wants.gpu_milli)
            found.append(KeptPlace(node.spec.id, node.pool, 0, min(able), milli, cpu, memory, spec.exclusive))
            if len(found) == workers:
                return found
    return found
