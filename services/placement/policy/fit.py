"""What every placement policy gets and gives: a pool seen by one gang while its workers find their places one by
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.placement.policy.islands import devices_of_one
from shared.cluster.capacity import PoolCapacity
from shared.cluster.marks import allowed
from shared.cluster.node import Node, mask_of
from shared.cluster.state import CellState
from shared.events.values import GPU, JobSpec, Resources, WorkerPlace

_NEAR = (1 << 512) - 1


@dataclass(slots=True)
class Room:
    """What is free in one pool, less what this gang's workers have taken so far. The state is not touched.

    Workers of one gang need the same resources, so only nodes that the gang has taken from differ from the state. The
    node that was taken from last is put into its new bucket of `by_free` only when the gang leaves it.
    """

    state: CellState
    pool: PoolCapacity
    by_free: dict[int, int]
    by_share: dict[int, int]
    free: dict[str, int] = field(default_factory=dict)
    shares: dict[str, dict[int, int]] = field(default_factory=dict)
    workers_on: dict[str, int] = field(default_factory=dict)
    last: Node | None = None
    last_was_free: int = 0

    @classmethod
    def of(cls, state: CellState, pool: PoolCapacity, spec: JobSpec, among: int | None = None) -> Room:
        """What is free now on those nodes of the pool, or of `among` (by their numbers), that the job may use."""
        usable = allowed(state, pool, spec)
        if usable is not None:
            among = usable if among is None else among & usable
        if among is None:
            return cls(state, pool, dict(pool.by_free), dict(pool.by_share))
        by_free = {free: mask & among for free, mask in pool.by_free.items()}
        return cls(state, pool, by_free, {share: mask & among for share, mask in pool.by_share.items()})

    def fullest(self, spec: JobSpec, gpus: int) -> Node | None:
        """The node with the fewest whole free devices, but at least `gpus`, that suits; the lowest among equals.

        While the last one fits, it is this node: by what was taken it became fuller than all that fit.
        """
        last = self.last
        if last is not None:
            if self.free[last.id].bit_count() >= gpus and self.suits(last, spec):
                return last
            self._leave(last)
        for free in sorted(self.by_free):
            if free >= gpus:
                node = self.first_suitable(self.by_free[free], spec)
                if node is not None:
                    return node
        return None

    def fullest_of(self, spec: JobSpec, gpus: int, among: int) -> Node | None:
        """The same for these nodes only."""
        self._settle()
        for free in sorted(self.by_free):
            if free >= gpus:
                node = self.first_suitable(self.by_free[free] & among, spec)
                if node is not None:
                    return node
        return None

    def lowest(self, spec: JobSpec, gpus: int) -> Node | None:
        """The lowest node with `gpus` whole free devices that suits."""
        self._settle()
        mask = 0
        for free, nodes in self.by_free.items():
            if free >= gpus:
                mask |= nodes
        return self.first_suitable(mask, spec)

    def emptiest(self, spec: JobSpec, gpus: int, among: int) -> Node | None:
        """The node of `among` with the most whole free devices, but at least `gpus`, that suits; the lowest among
        equals.
        """
        self._settle()
        for free in sorted(self.by_free, reverse=True):
            if free < gpus:
                return None
            node = self.first_suitable(self.by_free[free] & among, spec)
            if node is not None:
                return node
        return None

    def _settle(self) -> None:
        if self.last is not None:
            self._leave(self.last)

    def _leave(self, last: Node) -> None:
        bit = 1 << self.pool.number(last.id)
        now = self.free[last.id].bit_count()
        self.by_free[self.last_was_free] ^= bit
        self.by_free[now] = self.by_free.get(now, 0) | bit
        self.last = None

    def free_on(self, node: Node) -> int:
        """The mask of the node's devices that are wholly free and not taken by this gang."""
        return self.free.get(node.id, node.free)

    def suits(self, node: Node, spec: JobSpec) -> bool:
        """Whether the node has the right GPU type, and CPU and memory for one more worker."""
        return suits(node, spec, self.workers_on.get(node.id, 0) + 1)

    def first_suitable(self, mask: int, spec: JobSpec) -> Node | None:
        """The node of the lowest number among `mask` that suits."""
        return first_suitable(self.state, self.pool, mask, spec, self.workers_on)

    def take_whole(self, rank: int, node: Node, wants: Resources) -> WorkerPlace:
        """Free devices of the node for one worker."""
        free = self._enter(node)
        chosen = devices_of_one(free, node.spec, wants.gpu_milli // GPU)
        self.free[node.id] = free ^ mask_of(chosen)
        return self._place(rank, node, chosen, wants)

    def unbroken_device(self, node: Node) -> int:
        """The wholly free device of the node that a worker who needs a share of one breaks. There is one."""
        return devices_of_one(self.free_on(node), node.spec, 1)[0]

    def take_share(self, rank: int, node: Node, device: int, wants: Resources) -> WorkerPlace:
        """A share of one device of the node for one worker."""
        shares = self.shares.get(node.id)
        if shares is None:
            shares = self.shares[node.id] = dict(node.shares)
        if device not in shares:
            self.free[node.id] = self._enter(node) ^ (1 << device)
            shares[device] = GPU
        self._move_share(node, shares, device, shares[device] - wants.gpu_milli)
        return self._place(rank, node, (device,), wants)

    def _enter(self, node: Node) -> int:
        """The node's free devices; from now on it is the last one."""
        free = self.free.get(node.id)
        if free is None:
            free = node.free
        if self.last is not node:
            if self.last is not None:
                self._leave(self.last)
            self.last, self.last_was_free = node, free.bit_count()
        return free

    def _move_share(self, node: Node, shares: dict[int, int], device: int, left: int) -> None:
        bit = 1 << self.pool.number(node.id)
        before, shares[device] = shares[device], left
        if not any(free == before and not node.failed >> other & 1 for other, free in shares.items()):
            self.by_share[before] = self.by_share.get(before, 0) & ~bit
        if left:
            self.by_share[left] = self.by_share.get(left, 0) | bit

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


def suits(node: Node, spec: JobSpec, workers: int) -> bool:
    """Whether the node has the right GPU type, and CPU and memory for so many workers."""
    if spec.gpu_type is not None and spec.gpu_type != node.spec.gpu_type:
        return False
    wants = spec.resources
    if wants.cpu_milli and wants.cpu_milli * workers > node.spec.cpu_milli - node.cpu_used:
        return False
    return not (wants.memory_mib and wants.memory_mib * workers > node.spec.memory_mib - node.memory_used)


def first_suitable(
    state: CellState, pool: PoolCapacity, mask: int, spec: JobSpec, workers_on: Mapping[str, int]
) -> Node | None:
    """The node of the lowest number among `mask` that suits one worker more than it has of this gang."""
    while mask:
        number = _lowest_number(mask)
        node = state.nodes[pool.ids[number]]
        if suits(node, spec, workers_on.get(node.spec.id, 0) + 1):
            return node
        mask ^= 1 << number
    return None


def _lowest_number(mask: int) -> int:
    """The number of the lowest bit. To negate the mask of a large pool is slow, and the low end is mostly enough."""
    near = mask & _NEAR or mask
    return (near & -near).bit_length() - 1
