"""What is kept for owners that wait: which places, and from which jobs.

An owner's job that would fit now keeps places that hold it. One that does not keeps what is free on the nodes where
most of it is free, so that these become empty for it one by one, while others go on to start elsewhere. Only nodes
count that the job could use and that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from services.placement.policy.ever import reach_of
from services.placement.policy.filling import fill, fullest, workers_of
from services.placement.policy.fit import Room
from services.placement.policy.kept_index import KeptFrom, kept_in
from services.placement.policy.policies import Places
from shared.cluster.capacity import PoolCapacity
from shared.cluster.kept_places import Kept, KeptPlace, taken
from shared.cluster.marks import marks_of, needs_of
from shared.cluster.masks import each_bit
from shared.cluster.node import Node, lowest, mask_of
from shared.cluster.quota_tree import Account
from shared.cluster.state import CellState
from shared.cluster.topology import numbers_of, topology_for
from shared.events.reasons import DeferCode
from shared.events.value import replace
from shared.events.values import GPU, JobSpec, Wish

Search = Callable[[], Places | None]

LOOKS_MOST = 4
"""So often a search that comes by kept places is made again with what is kept there alone."""


def off_kept_places(
    state: CellState, pool: PoolCapacity, spec: JobSpec, places: Places, search: Search, fewest_milli: int
) -> Places | DeferCode:
    """The places that a search has found in a pool, if none is on a node where something is kept; else what `search`
    finds while the kept places count as in use. If it finds nothing, a job that would borrow from an owner waits as
    `reserved_for_other`, and any other job has the first places. `fewest_milli`: with fewer whole GPUs than that free
    the search would find nothing.
    """
    if not any(place.node in state.tree.kept.nodes for place in places):
        return places
    kept = KeptFrom(state, kept_in(state, pool), spec)
    if kept.places:
        look = _Look(state, pool, spec, kept, search, fewest_milli)
        found = look.beside(places, borrowed=False)
        if found is None and 0 < kept.borrowed_places < kept.places:
            found = look.beside(places, borrowed=True)
        if found is not None:
            return found
    return DeferCode.RESERVED_FOR_OTHER if kept.borrowed_places else places


class _Look(NamedTuple):
    """A look for places of a job beside what is kept from it."""

    state: CellState
    pool: PoolCapacity
    spec: JobSpec
    kept: KeptFrom
    search: Search
    fewest_milli: int

    def beside(self, places: Places, *, borrowed: bool) -> Places | None:
        """What the search finds beside all that is kept, or beside what the job would borrow, if it is `borrowed`.

        What is kept counts as in use where the search comes by: first where it found these places, then where it goes
        instead, and after a few nodes everywhere.
        """
        devices = self.kept.borrowed_devices if borrowed else self.kept.devices
        if (self.pool.free_whole - devices) * GPU < self.fewest_milli:
            return None  # nearly always, and soon: all else is in use
        looked_at, found = dict[str, None](), places
        with ExitStack() as in_use:
            for _ in range(LOOKS_MOST):
                new = [node for node in dict.fromkeys(place.node for place in found) if node not in looked_at]
                if not self._take(in_use, new, borrowed=borrowed):
                    return found
                looked_at |= dict.fromkeys(new)
                again = self.search()
                if again is None:
                    return None
                found = again
            self._take(in_use, [node for node in self.kept.nodes() if node not in looked_at], borrowed=borrowed)
            return self.search()

    def _take(self, in_use: ExitStack, nodes: Iterable[str], *, borrowed: bool) -> bool:
        """Let what is kept on these nodes count as in use. Whether there is any."""
        kept = [place for node in nodes for place in self.kept.on(node, borrowed=borrowed)]
        if kept:
            in_use.enter_context(taken(self.state, kept, by_all=self.spec.exclusive))
            self.state.capacity.pools()
        return bool(kept)


def pick(state: CellState, spec: JobSpec, owners: Sequence[tuple[Account, int]], *, is_whole: bool) -> Kept:
    """The places that are kept for a job as it stands in line, of one GPU type: in the first pool that holds all of it
    now, or else in that with most of it.
    """
    most, best = max(milli for _, milli in owners), list[KeptPlace]()
    has_room = any(pool.free_whole or pool.by_share for pool in state.pools.values())
    for name, mask in reach_of(state, spec).items() if has_room else ():
        found, holds_all = _pick_in(state, name, spec, mask)
        if sum(place.milli for place in found) > sum(place.milli for place in best) or not best:
            best = found
        if holds_all:
            best = found
            break
    return Kept(tuple(owners), tuple(_cut(best, most)), is_whole)


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
    devices, share_milli = mask_of(lowest(place.devices, milli // GPU)), min(place.share_milli, milli)
    rest = (place.cpu_milli, place.memory_mib, place.is_alone)
    return KeptPlace(place.node, place.pool, devices, place.device, share_milli, *rest)


def _pick_in(state: CellState, name: str, spec: JobSpec, reach: int) -> tuple[list[KeptPlace], bool]:
    """The places in one pool among these nodes, and whether they hold all of the job."""
    pool = state.pools[name]
    needs = needs_of(state, pool, spec)
    among = reach if needs is None else reach & marks_of(state, pool).members(state, needs)
    among = _in_best_unit(state, pool, spec, among)
    alone = replace(spec, workers=1, workers_min=None, topology=None)
    runs = fill(Room.of(state, pool, spec, among), alone, spec.workers, fullest)
    on: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for node_id, devices, many in runs:
        on.setdefault(node_id, []).append((devices, many))
    found = [place for node_id, here in on.items() for place in _places_on(state.nodes[node_id], spec, here)]
    left = spec.workers - workers_of(runs)
    if left:
        emptiest = _emptiest if spec.resources.gpu_milli >= GPU else _emptiest_devices
        found += emptiest(state, pool, spec, among, left, on)
    return found, not left


def _in_best_unit(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> int:
    """Those of these nodes that are in the one unit with the most free devices, if the job must be in one."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED or (wish.slice_workers or spec.workers) < spec.workers:
        return among
    topology = topology_for(state, pool, spec)
    units, room = topology.levels[wish.level], topology.ranking(wish.level, 1).room
    able = sorted(range(len(room)), key=lambda unit: (-room[unit], unit))
    for unit in able:
        here = numbers_of(pool, topology, units.slots(unit)) & among
        if units.named >> unit & 1 and here:
            return here
    return among


def _places_on(node: Node, spec: JobSpec, runs: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[KeptPlace]:
    """What so many workers would take of a node."""
    wants, workers = spec.resources, sum(many for _, many in runs)
    if wants.gpu_milli >= GPU:
        devices = mask_of(tuple(device for chosen, _ in runs for device in chosen))
        rest = (wants.cpu_milli * workers, wants.memory_mib * workers, spec.exclusive)
        yield KeptPlace(node.spec.id, node.pool, devices, 0, 0, *rest)
        return
    for (device, *_), many in runs:
        rest = (wants.cpu_milli * many, wants.memory_mib * many, spec.exclusive)
        yield KeptPlace(node.spec.id, node.pool, 0, device, wants.gpu_milli * many, *rest)


def _emptiest(
    state: CellState, pool: PoolCapacity, spec: JobSpec, among: int, workers: int, on: Container[str]
) -> list[KeptPlace]:
    """What is free of the nodes with the most free devices, for workers that fit nowhere now."""
    wants, found = spec.resources, list[KeptPlace]()
    gpus = wants.gpu_milli // GPU
    for free in sorted((free for free in pool.by_free if free), reverse=True):
        for number in each_bit(pool.by_free[free] & among):
            node = state.nodes[pool.ids[number]]
            if node.spec.id in on:
                continue
            here = min(workers, max(1, node.spec.gpus // gpus))
            devices = mask_of(lowest(node.free, here * gpus))
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
