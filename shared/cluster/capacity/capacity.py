"""Where room is: indices over the nodes of each pool, kept by delta.

A pool's nodes are numbered in the order of their ids, and a set of nodes is a bit mask over these numbers. So "the
fullest node with at least k free devices, the lowest id first" is a walk over at most as many buckets as a node has
devices, and the lowest set bit.

The indices follow from the nodes, and most who fold never ask for them. So a change of a node only notes its name; who
asks has the noted nodes counted first, each once, however often it changed. Nothing of this needs to be undone: a node
that is put back is noted again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Protocol

from fallow.shared.cluster.capacity.effort import Effort
from fallow.shared.cluster.model.node import NOTHING, Node, NodeShare, share_of


class View(Protocol):
    """A further index over the nodes of a pool."""

    @property
    def is_stale(self) -> bool:
        """Whether it must be made anew before it is asked again."""

    def note(self, node: Node, free: int) -> None:
        """The node may have changed; new work may have so many whole devices of it now."""


@dataclass(slots=True)
class PoolCapacity:
    """One pool. `by_free[k]` are the schedulable nodes with exactly k wholly free devices; `by_share[m]` those with a
    shared device on which exactly m milli-GPUs are free. `gpus_milli` and `allocated_milli` count healthy devices of
    nodes that are not lost, and what is in use on all nodes; `idle_milli` what is unused of the former: more than the
    difference, where workers run on lost nodes or failed devices. `nodes_tainted` have a taint, `nodes_in_zone` are
    kept for services. `views` are the indices over its nodes that are in use, by name; they are told of
    each change, and given up when a node comes or goes. `effort` is the cell's.
    """

    ids: list[str] = field(default_factory=list)
    by_free: dict[int, int] = field(default_factory=dict)
    by_share: dict[int, int] = field(default_factory=dict)
    free_whole: int = 0
    nodes_fragmented: int = 0
    nodes_usable: int = 0
    gpus_milli: int = 0
    allocated_milli: int = 0
    idle_milli: int = 0
    nodes_tainted: int = 0
    nodes_in_zone: int = 0
    last_found: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    views: dict[object, View] = field(default_factory=dict, compare=False, repr=False)
    effort: Effort = field(default_factory=Effort, compare=False, repr=False)

    def number(self, node_id: str) -> int:
        """The node's place among the pool's ids; where it would be, if it is not there."""
        ids = self.ids
        at = self.last_found.get(node_id, 0)
        if at < len(ids) and ids[at] == node_id:
            return at
        at = self.last_found[node_id] = bisect_left(ids, node_id)
        return at


class Capacity:
    """The indices of all pools over a table of nodes."""

    __slots__ = ("_counted", "_has_new_pool", "_is_void", "_nodes", "_pools", "effort", "noted")

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.noted: dict[str, Node] = {}
        """Nodes that may have changed since they were counted. Who changes a node puts it here."""
        self.effort = Effort()
        """What looks for places have cost so far."""
        self._nodes = nodes
        self._pools: dict[str, PoolCapacity] = {}
        self._counted: dict[str, NodeShare] = {}
        self._is_void = self._has_new_pool = False

    def __eq__(self, other: object) -> bool:
        """Whether the pools are equal; what is noted makes no difference."""
        return isinstance(other, Capacity) and self.pools() == other.pools()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def pools(self) -> dict[str, PoolCapacity]:
        """Every pool, as its nodes are now, in the order of their names: in which order their nodes have joined, or
        whether all was counted anew, decides nothing.
        """
        if self._is_void:
            self._count_all()
        elif self.noted:
            if self._has_new_pool:
                for name in sorted(self._pools):
                    self._pools[name] = self._pools.pop(name)
                self._has_new_pool = False
            self._count_noted()
        return self._pools

    @property
    def as_counted(self) -> dict[str, PoolCapacity]:
        """Every pool as its nodes were when they were counted last."""
        return self._pools

    @property
    def only_changed(self) -> Node | None:
        """The one node that may have changed since; None where there is none or more than one."""
        if len(self.noted) != 1 or self._is_void:
            return None
        return next(iter(self.noted.values()))

    def void(self) -> None:
        """Count everything from nothing at the next question."""
        self._is_void = True

    def enter(self, node: Node) -> None:
        """Put a node into the pool in which it works now."""
        if not self._is_void:
            pool = self._pools.get(node.pool)
            if pool is None:
                pool = self._pools[node.pool] = PoolCapacity(effort=self.effort)
                self._has_new_pool = True
            insert_node(pool, node.id)
            self.noted[node.id] = node

    def leave(self, node: Node) -> None:
        """Take a node out of its pool, before it changes to another."""
        if self._is_void:
            return
        pool = self._pools[node.pool]
        move(pool, node.id, self._counted.pop(node.id, NOTHING), NOTHING)
        remove_node(pool, node.id)
        self.noted.pop(node.id, None)
        if not pool.ids:
            del self._pools[node.pool]

    def _count_noted(self) -> None:
        """Count each noted node, and tell of it to who follows its pool: nearly all of them are of the pool of the one
        before.
        """
        pools, counted = self._pools, self._counted
        pool: PoolCapacity
        last: str | None = None
        for node_id, node in self.noted.items():
            before, now, name = counted.get(node_id, NOTHING), share_of(node), node.lent_to or node.spec.pool
            if name != last:
                pool, last = pools[name], name
                notes = [view.note for view in pool.views.values()]
            if now is not before and now != before:
                move(pool, node_id, before, now)
                counted[node_id] = now
            free = now.free or 0
            for note in notes:
                note(node, free)
        self.noted.clear()

    def _count_all(self) -> None:
        self._pools = recount(self._nodes)
        for pool in self._pools.values():
            pool.effort = self.effort
        self._counted = {node_id: share_of(node) for node_id, node in self._nodes.items()}
        self.noted.clear()
        self._is_void = self._has_new_pool = False


def insert_node(pool: PoolCapacity, node_id: str) -> None:
    """Make room for a new node's number: the numbers behind it move up by one, in every mask."""
    at = pool.number(node_id)
    below = (1 << at) - 1
    pool.views.clear()
    pool.ids.insert(at, node_id)
    for table in (pool.by_free, pool.by_share):
        for key, mask in table.items():
            table[key] = (mask & below) | ((mask & ~below) << 1)


def remove_node(pool: PoolCapacity, node_id: str) -> None:
    """Close the gap of a node that is in no mask any more."""
    at = pool.number(node_id)
    below = (1 << at) - 1
    pool.views.clear()
    del pool.ids[at]
    pool.last_found.pop(node_id, None)
    for table in (pool.by_free, pool.by_share):
        for key, mask in table.items():
            table[key] = (mask & below) | ((mask >> (at + 1)) << at)


def move(pool: PoolCapacity, node_id: str, before: NodeShare, after: NodeShare) -> None:
    """Take a node's old share out of its pool and put the new one in."""
    bit = 1 << pool.number(node_id)
    old_free, old_shares, old_fragmented, old_usable, old_gpus, old_allocated, old_tainted, old_zoned, old_idle = before
    free, shares, fragmented, usable, gpus, allocated, tainted, zoned, idle = after
    if old_free != free:
        _move_bit(pool.by_free, bit, old_free, free)
        pool.free_whole += (free or 0) - (old_free or 0)
    if old_shares != shares:
        for share in old_shares:
            _move_bit(pool.by_share, bit, share, None)
        for share in shares:
            _move_bit(pool.by_share, bit, None, share)
    pool.nodes_fragmented += fragmented - old_fragmented
    pool.nodes_usable += usable - old_usable
    pool.gpus_milli += gpus - old_gpus
    pool.allocated_milli += allocated - old_allocated
    pool.nodes_tainted += tainted - old_tainted
    pool.nodes_in_zone += zoned - old_zoned
    pool.idle_milli += idle - old_idle


def _move_bit(table: dict[int, int], bit: int, old: int | None, new: int | None) -> None:
    if old is not None:
        rest = table[old] ^ bit
        if rest:
            table[old] = rest
        else:
            del table[old]
    if new is not None:
        table[new] = table.get(new, 0) | bit


def recount(nodes: dict[str, Node]) -> dict[str, PoolCapacity]:
    """The indices of all pools, counted from nothing: what the indices by delta must equal at any time."""
    pools: dict[str, PoolCapacity] = {}
    for node_id in sorted(nodes):
        pools.setdefault(nodes[node_id].pool, PoolCapacity()).ids.append(node_id)
    for pool in pools.values():
        for node_id in pool.ids:
            move(pool, node_id, NOTHING, share_of(nodes[node_id]))
    return {name: pools[name] for name in sorted(pools)}
