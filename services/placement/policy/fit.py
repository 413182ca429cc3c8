"""What every placement policy gets and gives: a pool seen by one gang while its workers find their places one by
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.cluster.capacity import PoolCapacity
from shared.cluster.node import Node, lowest, mask_of
from shared.cluster.state import CellState
from shared.events.values import GPU, JobSpec, Resources, WorkerPlace


@dataclass(slots=True)
class Room:
    """What is free in one pool, less what this gang's workers have taken so far. The state is not touched.

    Workers of one gang need the same resources, so only nodes that the gang has taken from differ from the state.
    """

    state: CellState
    pool: PoolCapacity
    by_free: dict[int, int]
    by_share: dict[int, int]
    devices: dict[str, int] = field(default_factory=dict)
    shares: dict[str, dict[int, int]] = field(default_factory=dict)
    workers_on: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: CellState, pool: PoolCapacity) -> Room:
        """All that is free in the pool now."""
        return cls(state, pool, dict(pool.by_free), dict(pool.by_share))

    def node(self, number: int) -> Node:
        """The node of this number in the pool."""
        return self.state.nodes[self.pool.ids[number]]

    def suits(self, node: Node, spec: JobSpec) -> bool:
        """Whether the node has the right GPU type, and CPU and memory for one more worker."""
        if spec.gpu_type is not None and spec.gpu_type != node.spec.gpu_type:
            return False
        wants, here = spec.resources, self.workers_on.get(node.id, 0) + 1
        if wants.cpu_milli and wants.cpu_milli * here > node.spec.cpu_milli - node.cpu_used:
            return False
        return not (wants.memory_mib and wants.memory_mib * here > node.spec.memory_mib - node.memory_used)

    def first_suitable(self, mask: int, spec: JobSpec) -> Node | None:
        """The node of the lowest number among `mask` that suits."""
        while mask:
            low = mask & -mask
            node = self.node(low.bit_length() - 1)
            if self.suits(node, spec):
                return node
            mask ^= low
        return None

    def take_whole(self, rank: int, node: Node, wants: Resources) -> WorkerPlace:
        """The lowest free devices of the node for one worker."""
        free = self.devices.get(node.id)
        if free is None:
            free = node.free
        count = wants.gpu_milli // GPU
        chosen = lowest(free, count)
        left = free & ~mask_of(chosen)
        self.devices[node.id] = left
        self._move(self.by_free, node.id, free.bit_count(), left.bit_count())
        return self._place(rank, node, chosen, wants)

    def take_share(self, rank: int, node: Node, device: int, wants: Resources) -> WorkerPlace:
        """A share of one device of the node for one worker."""
        shares = self.shares.get(node.id)
        if shares is None:
            shares = self.shares[node.id] = dict(node.shares)
        if device not in shares:
            free = self.devices.get(node.id, node.free)
            self.devices[node.id] = free & ~(1 << device)
            self._move(self.by_free, node.id, free.bit_count(), free.bit_count() - 1)
            shares[device] = GPU
        left = shares[device] - wants.gpu_milli
        self._move_share(node, shares, device, left)
        return self._place(rank, node, (device,), wants)

    def _move_share(self, node: Node, shares: dict[int, int], device: int, left: int) -> None:
        bit = 1 << self.pool.number(node.id)
        before, shares[device] = shares[device], left
        if not any(free == before and not node.failed >> other & 1 for other, free in shares.items()):
            self.by_share[before] = self.by_share.get(before, 0) & ~bit
        if left:
            self.by_share[left] = self.by_share.get(left, 0) | bit

    def _move(self, table: dict[int, int], node_id: str, old: int, new: int) -> None:
        bit = 1 << self.pool.number(node_id)
        table[old] &= ~bit
        table[new] = table.get(new, 0) | bit

    def _place(self, rank: int, node: Node, devices: tuple[int, ...], wants: Resources) -> WorkerPlace:
        self.workers_on[node.id] = self.workers_on.get(node.id, 0) + 1
        return WorkerPlace(
            rank=rank,
            node=node.id,
            devices=devices,
            gpu_milli=wants.gpu_milli,
            cpu_milli=wants.cpu_milli,
            memory_mib=wants.memory_mib,
        )
