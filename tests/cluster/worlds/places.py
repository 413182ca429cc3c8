"""Where the jobs of made-up histories run: any places that are free, with no wish to be clever."""

from __future__ import annotations

from random import Random

from fallow.shared.cluster.model.node import Node, lowest
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import over_limit
from fallow.shared.events.fields.values import GPU, JobSpec, WorkerPlace


def find_places(state: CellState, spec: JobSpec, ranks: list[int], random: Random) -> tuple[WorkerPlace, ...] | None:
    """Places for workers of these ranks, each on the first node of a shuffled row that takes it, or None."""
    nodes = [node for node in state.nodes.values() if accepts(node, spec)]
    random.shuffle(nodes)
    room = {node.id: Room(node) for node in nodes}
    found: list[WorkerPlace] = []
    for rank in ranks:
        place = next((p for node in nodes if (p := room[node.id].take(spec, rank)) is not None), None)
        if place is None:
            return None
        found.append(place)
    return tuple(found) if within_limits(state, spec, found) else None


def accepts(node: Node, spec: JobSpec) -> bool:
    return (
        node.is_schedulable
        and (not spec.pools or node.pool in spec.pools)
        and spec.gpu_type in (None, node.spec.gpu_type)
    )


def within_limits(state: CellState, spec: JobSpec, places: list[WorkerPlace]) -> bool:
    wanted: dict[str, int] = {}
    for place in places:
        gpu_type = state.nodes[place.node].spec.gpu_type
        wanted[gpu_type] = wanted.get(gpu_type, 0) + place.gpu_milli
    refusals = [over_limit(state.tree, spec.tenant, type_, milli) for type_, milli in wanted.items()]
    return all(refusal is None for refusal in refusals)


class Room:
    """What is left of one node while a gang is being placed."""

    def __init__(self, node: Node) -> None:
        self.node = node.id
        self.free = node.free
        self.shares = {d: m for d, m in node.shares.items() if not node.closed >> d & 1}
        self.cpu = node.cpu_free
        self.memory = node.memory_free

    def take(self, spec: JobSpec, rank: int) -> WorkerPlace | None:
        wanted = spec.resources
        if wanted.cpu_milli > self.cpu or wanted.memory_mib > self.memory:
            return None
        devices = self.share(wanted.gpu_milli) if wanted.gpu_milli < GPU else self.whole(wanted.gpu_milli // GPU)
        if not devices:
            return None
        self.cpu -= wanted.cpu_milli
        self.memory -= wanted.memory_mib
        return WorkerPlace(
            rank=rank,
            node=self.node,
            devices=devices,
            gpu_milli=wanted.gpu_milli,
            cpu_milli=wanted.cpu_milli,
            memory_mib=wanted.memory_mib,
        )

    def share(self, milli: int) -> tuple[int, ...]:
        device = next((d for d in sorted(self.shares) if self.shares[d] >= milli), None)
        if device is None:
            device = next(iter(lowest(self.free, 1)), None)
        if device is None:
            return ()
        self.free &= ~(1 << device)
        self.shares[device] = self.shares.get(device, GPU) - milli
        return (device,)

    def whole(self, count: int) -> tuple[int, ...]:
        if self.free.bit_count() < count:
            return ()
        devices = lowest(self.free, count)
        for device in devices:
            self.free &= ~(1 << device)
        return devices
