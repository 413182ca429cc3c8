"""What is kept on some nodes of a pool for workers that wait: the places of those that fit there now, and for the
others what is free of the nodes with the most room.

A node on which some of them fit is one of these too, with the rest of its room: so what is free beside the first worker
comes together for the next. What is free of a shared device counts as well, since a device becomes whole only if none
of it is used again. An idle node on which a worker does not fit is never waited for: another node is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fallow.services.placement.fit.device_selection import devices_for
from fallow.services.placement.fit.filling import fill, fullest, workers_of
from fallow.services.placement.fit.free_capacity import FreeCapacity, more_that_suit
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.model.node import Node, lowest_of, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import KeptPlace
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, WORKERS_MAX, JobSpec


class Plan(NamedTuple):
    """Places for the workers that fit now (`fit`), what is free for the other workers (`rest`), the number of those
    others (`left`), how many of them have nothing free yet (`unplanned`), the nodes kept for them (`waiting`), and the
    last node used if all fit (`last`: its free devices, its number).
    """

    fit: list[KeptPlace]
    rest: list[KeptPlace]
    left: int
    unplanned: int
    waiting: int
    last: tuple[int, int] | None

    @property
    def gain(self) -> tuple[int, int]:
        """How much of it there is: whole devices, or shares for who needs such; then what is free of the freest shared
        devices. While jobs only end and others are kept off, it does not become less.
        """
        whole, freest = 0, dict[str, int]()
        for place in (*self.fit, *self.rest):
            whole += place.devices.bit_count()
            freest[place.node] = max(freest.get(place.node, 0), place.share_milli)
        return whole, sum(freest.values())


class Ground(NamedTuple):
    """Where places are looked for: for a job of one GPU type in a pool. Runs that began before `since_ms` may have no
    end: nothing comes free where they are.
    """

    state: CellState
    pool: PoolCapacity
    spec: JobSpec
    since_ms: int | None = None

    def plan(self, among: int, workers: int) -> Plan:
        """What is kept of these nodes for so many of its workers."""
        if self.spec.resources.gpu_milli < GPU:
            return _shares(self, among, workers)
        usable = allowed(self.state, self.pool, self.spec)
        fit, last = self._whole_devices(among if usable is None else among & usable, workers)
        left = workers - sum(place.devices.bit_count() for place in fit) * GPU // self.spec.resources.gpu_milli
        if not left:
            return Plan(fit, [], 0, 0, 0, last)
        rest, unplanned, waiting = self._emptiest(among, left, {place.node: place for place in fit})
        return Plan(fit, rest, left, unplanned, waiting, None)

    def node(self, number: int) -> Node:
        """The node of this number in the pool."""
        return self.state.nodes[self.pool.ids[number]]

    def to_come(self, node: Node, fitting: int) -> int:
        """How many more of the workers the node will hold than the ones that fit there now, once all that runs there is
        over.
        """
        is_idle = not node.jobs and node.free == node.all_devices & ~node.failed
        if is_idle or (self.since_ms is not None and may_be_held_for_ever(self.state, node, self.since_ms)):
            return 0
        return holds_empty(node, self.spec) - fitting

    def _whole_devices(self, among: int, workers: int) -> tuple[list[KeptPlace], tuple[int, int] | None]:
        """Places for as many workers as fit, each of whole devices, on the nodes with the fewest free devices first;
        and the last of these nodes, where they are places for all.
        """
        left, found, by_free, spec = workers, list[KeptPlace](), self.pool.by_free, self.spec
        gpus = spec.resources.gpu_milli // GPU
        for free in sorted(by_free):
            mask = by_free[free] & among if free >= gpus else 0
            for number in each_bit(mask):
                node = self.node(number)
                here = min(more_that_suit(node, spec, 0, left), free // gpus)
                if here:
                    found.append(_place(node, spec, here, _devices_on(node, gpus, here)))
                    left -= here
                    if not left:
                        return found, (free, number)
        return found, None

    def _emptiest(self, among: int, workers: int, fit: Mapping[str, KeptPlace]) -> tuple[list[KeptPlace], int, int]:
        """What is free of the nodes with the most free devices, for workers that fit nowhere now; for how many of these
        nothing is, and the nodes.
        """
        found, waiting, gpus = list[KeptPlace](), 0, self.spec.resources.gpu_milli // GPU
        for number in _freest(self.state, self.pool, among, fit):
            node = self.node(number)
            beside = fit.get(node.spec.id)
            here = min(workers, self.to_come(node, 0 if beside is None else beside.devices.bit_count() // gpus))
            if here > 0:
                found += _rest_of(node, self.spec, here, beside)
                waiting |= 1 << number
                workers -= here
                if not workers:
                    break
        return found, workers, waiting

    def could_come(self, among: int, plan: Plan) -> bool:
        """Whether the workers without free room will fit on these nodes once running jobs end."""
        left, on, milli = plan.unplanned, dict[str, int](), self.spec.resources.gpu_milli
        for place in plan.fit if left else ():
            on[place.node] = on.get(place.node, 0) + place.milli // milli
        for number in each_bit(among & ~plan.waiting) if left else ():
            node = self.node(number)
            left -= self.to_come(node, on.get(node.spec.id, 0))
            if left <= 0:
                return True
        return not left


def holds_empty(node: Node, spec: JobSpec) -> int:
    """How many of these workers a node holds when nothing runs there; one at least."""
    wants, healthy = spec.resources, (node.all_devices & ~node.failed).bit_count()
    by_gpus = healthy // (wants.gpu_milli // GPU) if wants.gpu_milli >= GPU else healthy * (GPU // wants.gpu_milli)
    by_cpu = node.spec.cpu_milli // wants.cpu_milli if wants.cpu_milli else WORKERS_MAX
    by_memory = node.spec.memory_mib // wants.memory_mib if wants.memory_mib else WORKERS_MAX
    return max(1, min(by_gpus, by_cpu, by_memory))


def may_be_held_for_ever(state: CellState, node: Node, since_ms: int) -> bool:
    """Whether a run is there that began before that, and that no limit of its own ends."""
    jobs = [state.jobs[job_id] for job_id in node.jobs if job_id in state.jobs]
    return any(job.spec.max_run_ms is None and job.started_ms is not None and job.started_ms < since_ms for job in jobs)


def _freest(state: CellState, pool: PoolCapacity, among: int, fit: Mapping[str, KeptPlace]) -> Iterator[int]:
    """These nodes without what is taken of them: those with the most free devices first, of equals the one with the
    most room on a shared device. Those without any room are left out.
    """
    taken = {pool.number(node_id): place.devices for node_id, place in fit.items()}
    others = among
    for number in taken:
        others &= ~(1 << number)
    by_rest = {free: here for free, mask in pool.by_free.items() if (here := mask & others)}
    for number, devices in taken.items():
        rest = (state.nodes[pool.ids[number]].free & ~devices).bit_count()
        by_rest[rest] = by_rest.get(rest, 0) | 1 << number
    for rest in sorted(by_rest, reverse=True):
        left = by_rest[rest]
        for share in sorted(pool.by_share, reverse=True):
            shared = left & pool.by_share[share]
            yield from each_bit(shared)
            left ^= shared
        yield from each_bit(left if rest else 0)


def _rest_of(node: Node, spec: JobSpec, workers: int, beside: KeptPlace | None) -> Iterator[KeptPlace]:
    """What is free of a node for so many workers, beside others of the same job: whole devices, and of shared ones
    those with the most room.
    """
    wants, has = spec.resources, node.spec
    taken, cpu_taken, memory_taken = (beside.devices, beside.cpu_milli, beside.memory_mib) if beside else (0, 0, 0)
    cpu_milli = min(wants.cpu_milli * workers, node.cpu_free - cpu_taken)
    memory_mib = min(wants.memory_mib * workers, node.memory_free - memory_taken)
    many = workers * (wants.gpu_milli // GPU)
    devices = lowest_of(node.free & ~taken, many)
    if devices:
        yield KeptPlace(has.id, node.pool, devices, 0, 0, cpu_milli, memory_mib, spec.exclusive)
        cpu_milli = memory_mib = 0
    more = many - devices.bit_count()
    by_room = sorted((-free, at) for at, free in node.shares.items() if free and not node.closed >> at & 1)
    for negative_milli, device in by_room[:more]:
        rest = (cpu_milli, memory_mib, spec.exclusive)
        yield KeptPlace(has.id, node.pool, 0, device, -negative_milli, *rest)
        cpu_milli = memory_mib = 0


def _devices_on(node: Node, gpus: int, workers: int) -> int:
    """The devices of so many workers that come to this node together."""
    if len(node.spec.islands) > 1 or len(node.spec.nics) > 1:
        return sum(mask_of(devices) for devices in devices_for(node.free, node.spec, gpus, workers))
    return lowest_of(node.free, gpus * workers)


def _place(node: Node, spec: JobSpec, workers: int, devices: int) -> KeptPlace:
    wants = spec.resources
    rest = (wants.cpu_milli * workers, wants.memory_mib * workers, spec.exclusive)
    return KeptPlace(node.spec.id, node.pool, devices, 0, 0, *rest)


def _shares(ground: Ground, among: int, workers: int) -> Plan:
    """The same for workers that need a share of a device each."""
    state, pool, spec = ground.state, ground.pool, ground.spec
    alone = replace(spec, workers=1, workers_min=None, topology=None)
    runs = fill(FreeCapacity.of(state, pool, spec, among), alone, workers, fullest)
    on: dict[str, dict[int, int]] = {}
    for node_id, (device, *_), many in runs:
        on_node = on.setdefault(node_id, {})
        on_node[device] = on_node.get(device, 0) + many
    fit = [
        _share(state.nodes[node_id], spec, device, workers_on, spec.resources.gpu_milli * workers_on)
        for node_id, devices in on.items()
        for device, workers_on in devices.items()
    ]
    left = workers - workers_of(runs)
    rest, unplanned, waiting = _rest_of_shares(ground, among, left, on) if left else ([], 0, 0)
    return Plan(fit, rest, left, unplanned, waiting, None)


def _rest_of_shares(
    ground: Ground, among: int, workers: int, on: Mapping[str, Mapping[int, int]]
) -> tuple[list[KeptPlace], int, int]:
    """What is free of the shared devices with the most room, for workers that fit nowhere now; for how many of these
    nothing is, and the nodes. So many workers `on` each device fit.
    """
    found, waiting, coming, milli = list[KeptPlace](), 0, dict[int, int](), ground.spec.resources.gpu_milli
    for free_milli, number, device in _freest_devices(ground, among, on):
        node = ground.node(number)
        taken = on.get(node.spec.id, {})
        if number not in coming:
            coming[number] = ground.to_come(node, sum(taken.values()))
        here = min(workers, coming[number], GPU // milli - taken.get(device, 0))
        if here > 0:
            found.append(_share(node, ground.spec, device, here, min(free_milli, here * milli)))
            waiting |= 1 << number
            coming[number] -= here
            workers -= here
            if not workers:
                break
    return found, workers, waiting


def _share(node: Node, spec: JobSpec, device: int, workers: int, milli: int) -> KeptPlace:
    wants = spec.resources
    cpu = min(wants.cpu_milli * workers, node.cpu_free)
    memory = min(wants.memory_mib * workers, node.memory_free)
    return KeptPlace(node.spec.id, node.pool, 0, device, milli, cpu, memory, spec.exclusive)


def _freest_devices(ground: Ground, among: int, on: Mapping[str, Mapping[int, int]]) -> Iterator[tuple[int, int, int]]:
    """The shared devices of these nodes without what is taken of them, as what is free, node and device: the most room
    first.
    """
    pool, milli = ground.pool, ground.spec.resources.gpu_milli
    by_rest: dict[int, list[tuple[int, int]]] = {}
    for node_id, devices in on.items():
        node = ground.state.nodes[node_id]
        for device, fitting in devices.items():
            rest = node.shares.get(device, GPU) - fitting * milli
            by_rest.setdefault(rest, []).append((pool.number(node_id), device))
    for free_milli in sorted({share for share in (*by_rest, *pool.by_share) if share}, reverse=True):
        yield from ((free_milli, number, device) for number, device in by_rest.get(free_milli, ()))
        for number in each_bit(pool.by_share.get(free_milli, 0) & among):
            node = ground.node(number)
            taken: Iterable[int] = on.get(node.spec.id, ())
            for device, free in node.shares.items():
                if free == free_milli and device not in taken and not node.closed >> device & 1:
                    yield free_milli, number, device
