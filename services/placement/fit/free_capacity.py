"""What every placement policy gets and gives: a pool seen by one gang while its workers find their places one by
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.services.placement.fit.device_selection import devices_of_one
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import allowed
from fallow.shared.cluster.model.node import Node, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Resources, WorkerPlace

_NEAR = (1 << 512) - 1


@dataclass(slots=True)
class FreeCapacity:
    """What is free in one pool, less what this gang's workers have taken so far. The state is not touched.

    Workers of one gang need the same resources, so only nodes that the gang has taken from differ from the state, and
    a node that once did not suit one worker more (`spent`) never will.
    """

    state: CellState
    pool: PoolCapacity
    by_free: dict[int, int]
    by_share: dict[int, int]
    free: dict[str, int] = field(default_factory=dict)
    shares: dict[str, dict[int, int]] = field(default_factory=dict)
    workers_on: dict[str, int] = field(default_factory=dict)
    spent: int = 0

    @classmethod
    def of(cls, state: CellState, pool: PoolCapacity, spec: JobSpec, among: int | None = None) -> FreeCapacity:
        """What is free now on those nodes of the pool, or of `among` (by their numbers), that the job may use."""
        usable = allowed(state, pool, spec)
        if usable is not None:
            among = usable if among is None else among & usable
        by_free = dict(pool.by_free) if among is None else _among(pool.by_free, among)
        if spec.resources.gpu_milli >= GPU:
            return cls(state, pool, by_free, {})
        by_share = dict(pool.by_share) if among is None else _among(pool.by_share, among)
        return cls(state, pool, by_free, by_share)

    def fullest_of(self, spec: JobSpec, gpus: int, among: int) -> Node | None:
        """The node of `among` with the fewest whole free devices, but at least `gpus`, that suits; the lowest among
        equals.
        """
        return self._first(sorted([free for free in self.by_free if free >= gpus]), spec, among)

    def emptiest(self, spec: JobSpec, gpus: int, among: int) -> Node | None:
        """The node of `among` with the most whole free devices, but at least `gpus`, that suits; the lowest among
        equals.
        """
        return self._first(sorted([free for free in self.by_free if free >= gpus], reverse=True), spec, among)

    def with_free(self, gpus: int) -> int:
        """The nodes with at least so many whole free devices, but for those that are known to suit no more."""
        mask = 0
        for free, nodes in self.by_free.items():
            if free >= gpus:
                mask |= nodes
        return mask & ~self.spent

    def _first(self, in_order: list[int], spec: JobSpec, among: int) -> Node | None:
        for free in in_order:
            mask = self.by_free[free] & among
            node = self.first_suitable(mask, spec) if mask else None
            if node is not None:
                return node
        return None

    def first_suitable(self, mask: int, spec: JobSpec) -> Node | None:
        """The node of the lowest number among `mask` that suits."""
        mask &= ~self.spent
        while mask:
            number = _lowest_number(mask)
            node = self.state.nodes[self.pool.ids[number]]
            if suits(node, spec, self.workers_on.get(node.spec.id, 0) + 1):
                return node
            self.spent |= 1 << number
            self.pool.effort.looks += 1
            mask ^= 1 << number
        return None

    def free_on(self, node: Node) -> int:
        """The mask of the node's devices that are wholly free and not taken by this gang."""
        free = self.free.get(node.spec.id)
        return node.free if free is None else free

    def take(self, rank: int, node: Node, wants: Resources) -> WorkerPlace:
        """Free devices of the node for one worker; for a share of one, it breaks a device. The node has them."""
        free = self.free_on(node)
        chosen = devices_of_one(free, node.spec, -(-wants.gpu_milli // GPU))
        self._move(node, free, free ^ mask_of(chosen))
        if 0 < wants.gpu_milli < GPU:
            self._break(node, chosen[0], GPU - wants.gpu_milli)
        self.workers_on[node.spec.id] = self.workers_on.get(node.spec.id, 0) + 1
        return WorkerPlace(
            rank=rank,
            node=node.spec.id,
            devices=chosen,
            gpu_milli=wants.gpu_milli,
            cpu_milli=wants.cpu_milli,
            memory_mib=wants.memory_mib,
        )

    def _move(self, node: Node, before: int, now: int) -> None:
        bit, many = 1 << self.pool.number(node.spec.id), before.bit_count()
        self.free[node.spec.id] = now
        rest = self.by_free[many] ^ bit
        if rest:
            self.by_free[many] = rest
        else:
            del self.by_free[many]
        self.by_free[now.bit_count()] = self.by_free.get(now.bit_count(), 0) | bit

    def _break(self, node: Node, device: int, left: int) -> None:
        shares = self.shares.get(node.spec.id)
        if shares is None:
            shares = self.shares[node.spec.id] = dict(node.shares)
        shares[device] = left
        self.by_share[left] = self.by_share.get(left, 0) | 1 << self.pool.number(node.spec.id)


def _among(table: dict[int, int], among: int) -> dict[int, int]:
    return {key: left for key, mask in table.items() if (left := mask & among)}


def suits(node: Node, spec: JobSpec, workers: int) -> bool:
    """Whether the node has the right GPU type, and CPU and memory for so many workers."""
    if spec.gpu_type is not None and spec.gpu_type != node.spec.gpu_type:
        return False
    wants = spec.resources
    if wants.cpu_milli and wants.cpu_milli * workers > node.cpu_free:
        return False
    return not (wants.memory_mib and wants.memory_mib * workers > node.memory_free)


def more_that_suit(node: Node, spec: JobSpec, workers: int, most: int) -> int:
    """How many workers more than so many the node suits, by its GPU type, CPU and memory; `most` at most."""
    wants, has = spec.resources, node.spec
    if spec.gpu_type is not None and spec.gpu_type != has.gpu_type:
        return 0
    # By comparison, for the node is one of many that a search looks at: to call `min` would cost more than all else.
    if wants.cpu_milli:
        by_cpu = (has.cpu_milli - node.cpu_used - node.cpu_room) // wants.cpu_milli - workers
        if by_cpu < most:  # noqa: PLR1730 - see above
            most = by_cpu
    if wants.memory_mib:
        by_memory = (has.memory_mib - node.memory_used - node.memory_room) // wants.memory_mib - workers
        if by_memory < most:  # noqa: PLR1730
            most = by_memory
    return most if most > 0 else 0  # noqa: FURB136


def first_suitable(state: CellState, pool: PoolCapacity, mask: int, spec: JobSpec) -> Node | None:
    """The node of the lowest number among `mask` that suits one worker."""
    while mask:
        number = _lowest_number(mask)
        node = state.nodes[pool.ids[number]]
        if suits(node, spec, 1):
            return node
        pool.effort.looks += 1
        mask ^= 1 << number
    return None


def _lowest_number(mask: int) -> int:
    """The number of the lowest bit. To negate the mask of a large pool is slow, and the low end is mostly enough."""
    near = mask & _NEAR or mask
    return (near & -near).bit_length() - 1
