"""Workers who are all alike find their places in one pass: a node takes as many as it holds before the next one is
looked at.

They come to the same places as if each was placed after the one before, because by what the gang takes no node gets
room that it had not: a device that has no room for one more worker, and a node whose CPUs or memory do not last for
one, stay so. So the cost goes by the devices that are filled and the nodes that are passed over, not by the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fallow.services.placement.fit.device_selection import Devices, devices_for
from fallow.services.placement.fit.free_capacity import FreeCapacity, more_that_suit
from fallow.shared.cluster.capacity.masks import each_bit
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace

Run = tuple[str, Devices, int]
"""A node, devices of it, and how many workers share these: more than one on a shared device only."""

Order = Callable[[dict[int, int], int], Iterable[int]]
"""Of nodes by their free devices those with at least so many, as masks in the order in which they are filled: bit i is
the pool's node of number i, and of one mask the lowest bit is filled first. Each such node stands in one mask.
"""


def fullest(by_free: dict[int, int], gpus: int) -> Iterator[int]:
    """The nodes with the fewest free devices first."""
    return (by_free[free] for free in sorted(by_free) if free >= gpus)


def lowest(by_free: dict[int, int], gpus: int) -> Iterator[int]:
    """The lowest nodes first, however full they are."""
    mask = 0
    for free, nodes in by_free.items():
        if free >= gpus:
            mask |= nodes
    yield mask


def fill(room: FreeCapacity, spec: JobSpec, workers: int, order: Order) -> list[Run]:
    """Where so many workers of this job go, or as many as fit: beside others on shared devices where there is room for
    a share, those with the least room first, then on whole devices of the nodes in this order. The room is told of it
    only by `workers_on`: it can be asked no more.
    """
    filling = _Filling(room, spec, workers)
    filling.beside_others()
    filling.on_whole_devices(order)
    return filling.runs


def fill_shares(room: FreeCapacity, spec: JobSpec, workers: int) -> list[Run]:
    """The same on devices that are shared already."""
    filling = _Filling(room, spec, workers)
    filling.beside_others()
    return filling.runs


def count_room(room: FreeCapacity, spec: JobSpec, most: int) -> int:
    """How many workers of this job fit into a room from which nothing is taken, `most` at most: as many as `fill` finds
    places for, and as any search does that puts one after the other wherever there is room. Much cheaper than either.
    """
    milli = spec.resources.gpu_milli
    gpus, on_one = (1, GPU // milli) if 0 < milli < GPU else (milli // GPU, 1)
    counting = _Counting(room, spec, most)
    for share, nodes in room.by_share.items():
        if 0 < milli <= share:
            counting.beside |= nodes
    for free, nodes in room.by_free.items():
        counting.add(free // gpus * on_one if gpus else most, nodes)
    return most - counting.left


class _Counting:
    """One gang before a room. `left` are the workers that were not found room for yet, `beside` the nodes that have
    room for some on shared devices.
    """

    __slots__ = ("_is_plain", "_room", "_spec", "beside", "left")

    def __init__(self, room: FreeCapacity, spec: JobSpec, workers: int) -> None:
        wants = spec.resources
        self._room, self._spec, self.left, self.beside = room, spec, workers, 0
        self._is_plain = spec.gpu_type is None and not (wants.cpu_milli or wants.memory_mib)

    def add(self, each: int, nodes: int) -> None:
        """Count these nodes, the free devices of each of which hold so many workers."""
        if self._is_plain:
            self.left = max(0, self.left - each * nodes.bit_count())
            nodes, each = nodes & self.beside, 0
        elif not each:
            nodes &= self.beside
        if not self.left:
            return
        room, spec, milli = self._room, self._spec, self._spec.resources.gpu_milli
        table, ids = room.state.nodes, room.pool.ids
        for number in each_bit(nodes):
            node = table[ids[number]]
            here = each + shares_on(node, milli) if self.beside >> number & 1 else each
            room.pool.effort.looks += 1
            self.left -= min(self.left, here) if self._is_plain else more_that_suit(node, spec, 0, min(self.left, here))
            if not self.left:
                return


def shares_on(node: Node, milli: int) -> int:
    """How many such shares fit on the healthy devices of a node that are shared already."""
    return sum(free // milli for device, free in node.shares.items() if not node.closed >> device & 1)


def places_of_gang(room: FreeCapacity, spec: JobSpec, order: Order) -> tuple[WorkerPlace, ...] | None:
    """Places for all workers of the job, the ranks node by node; None where they do not fit."""
    if spec.workers > 1 and count_room(room, spec, spec.workers) < spec.workers:
        return None
    runs = fill(room, spec, spec.workers, order)
    return tuple(places_in(together(runs), spec)) if workers_of(runs) == spec.workers else None


def workers_of(runs: Iterable[Run]) -> int:
    """How many workers these are."""
    return sum(many for _, _, many in runs)


def together(runs: Sequence[Run]) -> list[Run]:
    """The same node by node: nodes in the order in which they were found, and what is on one in its own."""
    on: dict[str, list[Run]] = {}
    for run in runs:
        on.setdefault(run[0], []).append(run)
    return [run for here in on.values() for run in here] if len(on) < len(runs) else list(runs)


def places_in(runs: Iterable[Run], spec: JobSpec, first: int = 0) -> list[WorkerPlace]:
    """The places of these workers, the ranks from `first` on in their order."""
    wants, places = spec.resources, list[WorkerPlace]()
    milli, cpu, memory = wants.gpu_milli, wants.cpu_milli, wants.memory_mib
    rank = first
    for node, devices, many in runs:
        for at in range(rank, rank + many):
            places.append(
                WorkerPlace(rank=at, node=node, devices=devices, gpu_milli=milli, cpu_milli=cpu, memory_mib=memory)
            )
        rank += many
    return places


class _Filling:
    """One gang while it fills a room. `left` are the workers without a place."""

    __slots__ = ("_room", "_shares", "_spec", "left", "runs")

    def __init__(self, room: FreeCapacity, spec: JobSpec, workers: int) -> None:
        self._room, self._spec, self.left = room, spec, workers
        self._shares: dict[str, dict[int, list[int]]] = {}
        self.runs: list[Run] = []

    def beside_others(self) -> None:
        """The shared devices with the least room first, of equals those of the lowest node."""
        milli, by_share = self._spec.resources.gpu_milli, self._room.by_share
        if not 0 < milli < GPU:
            return
        for share in sorted([share for share in by_share if share >= milli]):
            for node, most in self._suitable(by_share[share]):
                left = most
                for device in self._devices_with(node, share):
                    here = min(share // milli, left)
                    if here:
                        self._take(node, (device,), here)
                        left -= here

    def on_whole_devices(self, order: Order) -> None:
        """Whole devices of the nodes in this order; as many shares on each as it holds. Who needs none is bound by CPUs
        and memory alone.
        """
        milli = self._spec.resources.gpu_milli
        gpus, on_one = (1, GPU // milli) if 0 < milli < GPU else (milli // GPU, 1)
        for mask in order(self._room.by_free, gpus):
            for node, most in self._suitable(mask):
                free = self._room.free_on(node)
                here = min(most, free.bit_count() // gpus * on_one) if gpus else most
                if not here:
                    continue
                *chosen, last = devices_for(free, node.spec, gpus, -(-here // on_one))
                self.runs += [(node.spec.id, devices, on_one) for devices in chosen]
                self._take(node, last, here - len(chosen) * on_one)
                self._count(node, len(chosen) * on_one)

    def _suitable(self, mask: int) -> Iterator[tuple[Node, int]]:
        """The nodes of a mask that suit one worker more, and how many of those that are left each suits."""
        room, spec = self._room, self._spec
        nodes, ids, on = room.state.nodes, room.pool.ids, room.workers_on
        wants = spec.resources
        is_plain = spec.gpu_type is None and not (wants.cpu_milli or wants.memory_mib)
        if not self.left:
            return
        effort = room.pool.effort
        for number in each_bit(mask):
            node = nodes[ids[number]]
            effort.looks += 1
            most = self.left if is_plain else more_that_suit(node, spec, on.get(ids[number], 0), self.left)
            if most:
                yield node, most
                if not self.left:
                    return

    def _take(self, node: Node, devices: Devices, workers: int) -> None:
        self.runs.append((node.spec.id, devices, workers))
        self._count(node, workers)

    def _count(self, node: Node, workers: int) -> None:
        on = self._room.workers_on
        on[node.spec.id] = on.get(node.spec.id, 0) + workers
        self.left -= workers

    def _devices_with(self, node: Node, share: int) -> list[int]:
        """The healthy devices of a node with exactly so much room, as it was before this gang, the lowest first."""
        found = self._shares.get(node.spec.id)
        if found is None:
            found = self._shares[node.spec.id] = {}
            shares = self._room.shares.get(node.spec.id, node.shares)
            for device in sorted(shares):
                if not node.closed >> device & 1:
                    found.setdefault(shares[device], []).append(device)
        return found[share]
