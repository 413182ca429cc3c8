"""What is kept for owners that wait: which places, and from which jobs.

An owner's job that would fit now keeps places that hold it. One that does not keeps what is free on the nodes where
most of it is free, so that these become empty for it one by one, while others go on to start elsewhere. Only nodes
count that the job could use and that are open.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

from services.placement.policy.ever import reach_of
from services.placement.policy.filling import fill, fullest, workers_of
from services.placement.policy.fit import Room
from services.placement.policy.policies import Places
from shared.cluster.capacity import PoolCapacity
from shared.cluster.kept_places import Kept, KeptPlace, taken
from shared.cluster.marks import marks_of, needs_of
from shared.cluster.masks import each_bit
from shared.cluster.node import Node, lowest, mask_of
from shared.cluster.quota_room import Borrower
from shared.cluster.quota_tree import Account
from shared.cluster.state import CellState
from shared.cluster.topology import numbers_of, topology_for
from shared.events.reasons import DeferCode
from shared.events.value import replace
from shared.events.values import GPU, JobSpec, Wish

Search = Callable[[], Places | None]


def off_kept_places(
    state: CellState, pool: PoolCapacity, spec: JobSpec, places: Places, search: Search, fewest_milli: int
) -> Places | DeferCode:
    """These places, which a search has found in a pool, if they leave alone what is kept from the job; or else what the
    same search finds beside that. A job that borrows nothing of an owner's goes beside what is kept for it if it fits
    there. `fewest_milli`: with fewer whole GPUs than that free the search would find nothing.
    """
    kept = state.tree.kept
    if not any(place.node in kept.nodes for place in places):
        return places
    borrowed, own = _kept_from(state, places[0].node, spec)
    if borrowed or own:
        found = _beside(state, pool, spec, [*borrowed, *own], search, fewest_milli)
        if found is None and borrowed and own:
            found = _beside(state, pool, spec, borrowed, search, fewest_milli)
        if found is not None:
            return found
    return DeferCode.RESERVED_FOR_OTHER if borrowed else places


def _beside(
    state: CellState,
    pool: PoolCapacity,
    spec: JobSpec,
    kept: Sequence[KeptPlace],
    search: Search,
    fewest_milli: int,
) -> Places | None:
    free = pool.free_whole
    for place in kept:
        if free * GPU < fewest_milli:
            break
        free -= (place.devices & state.nodes[place.node].free).bit_count()
    if free * GPU < fewest_milli:
        return None  # nearly always, and soon: all else is in use
    with taken(state, kept, by_all=spec.exclusive):
        state.capacity.pools()
        return search()


def _kept_from(state: CellState, node: str, spec: JobSpec) -> tuple[list[KeptPlace], list[KeptPlace]]:
    """The places in the pool of a node that are kept from the job, since it would borrow there, and those that it may
    take, since it uses what is its own.
    """
    tree, pool = state.tree, state.nodes[node].pool
    borrowed, own = list[KeptPlace](), list[KeptPlace]()
    borrowers: dict[str, Borrower] = {}
    waits: dict[str, bool] = {}
    for kept in tree.kept.all:
        from_others = to_others = 0
        for account, milli in kept.owners:
            borrower = borrowers.get(account[1])
            if borrower is None:
                borrower = borrowers[account[1]] = Borrower(tree, spec.tenant, account[1], spec.gpus_milli)
                waits[account[1]] = any(above in tree.kept.owners for above in borrower.above)
            if borrower.is_below(account):
                continue
            waits_too = not kept.is_whole and waits[account[1]]
            if not waits_too and borrower.borrows_from(account):
                from_others = max(from_others, milli)
            else:
                to_others = max(to_others, milli)
        if from_others or to_others:
            into = borrowed if from_others else own
            into += [place for place in kept.first(from_others or to_others) if place.pool == pool]
    return borrowed, own


def pick(state: CellState, spec: JobSpec, owners: Sequence[tuple[Account, int]], *, is_whole: bool) -> Kept:
    """The places that are kept for a job as it stands in line, of one GPU type: in the first pool that holds all of it
    now, or else in that with most of it.
    """
    most, best = max(milli for _, milli in owners), list[KeptPlace]()
    for name, mask in reach_of(state, spec).items():
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
