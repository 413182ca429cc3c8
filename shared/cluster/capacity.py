"""Where room is: indices over the nodes of each pool, kept by delta.

A pool's nodes are numbered in the order of their ids, and a set of nodes is a bit mask over these numbers. So "the
fullest node with at least k free devices, the lowest id first" is a walk over at most as many buckets as a node has
devices, and the lowest set bit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from shared.cluster.journal import Journal
from shared.cluster.node import NOTHING, Node, NodeShare, share_of


@dataclass(slots=True)
class PoolCapacity:
    """One pool. `by_free[k]` are the schedulable nodes with exactly k wholly free devices; `by_share[m]` those with a
    shared device on which exactly m milli-GPUs are free. `schedulable_milli` and `allocated_milli` count healthy
    devices of nodes that are not lost, and what is in use on all nodes.
    """

    ids: list[str] = field(default_factory=list)
    by_free: dict[int, int] = field(default_factory=dict)
    by_share: dict[int, int] = field(default_factory=dict)
    free_whole: int = 0
    nodes_fragmented: int = 0
    nodes_usable: int = 0
    gpus_milli: int = 0
    allocated_milli: int = 0

    def number(self, node_id: str) -> int:
        """The node's place among the pool's ids; where it would be, if it is not there."""
        return bisect_left(self.ids, node_id)


def insert_node(journal: Journal, pool: PoolCapacity, node_id: str) -> None:
    """Make room for a new node's number: the numbers behind it move up by one, in every mask."""
    at = pool.number(node_id)
    below = (1 << at) - 1
    journal.set(pool, "ids", [*pool.ids[:at], node_id, *pool.ids[at:]])
    for table in (pool.by_free, pool.by_share):
        for key, mask in list(table.items()):
            journal.put(table, key, (mask & below) | ((mask & ~below) << 1))


def remove_node(journal: Journal, pool: PoolCapacity, node_id: str) -> None:
    """Close the gap of a node that is in no mask any more."""
    at = pool.number(node_id)
    below = (1 << at) - 1
    journal.set(pool, "ids", [*pool.ids[:at], *pool.ids[at + 1 :]])
    for table in (pool.by_free, pool.by_share):
        for key, mask in list(table.items()):
            journal.put(table, key, (mask & below) | ((mask >> (at + 1)) << at))


def move(journal: Journal, pool: PoolCapacity, node_id: str, before: NodeShare, after: NodeShare) -> None:
    """Take a node's old share out of its pool and put the new one in."""
    bit = 1 << pool.number(node_id)
    if before.free != after.free:
        _move_bit(journal, pool.by_free, bit, before.free, after.free)
        journal.set(pool, "free_whole", pool.free_whole - (before.free or 0) + (after.free or 0))
    if before.shares != after.shares:
        for share in before.shares:
            _move_bit(journal, pool.by_share, bit, share, None)
        for share in after.shares:
            _move_bit(journal, pool.by_share, bit, None, share)
    if before.fragmented != after.fragmented:
        journal.set(pool, "nodes_fragmented", pool.nodes_fragmented + after.fragmented - before.fragmented)
    if before.usable != after.usable:
        journal.set(pool, "nodes_usable", pool.nodes_usable + after.usable - before.usable)
    if before.gpus_milli != after.gpus_milli:
        journal.set(pool, "gpus_milli", pool.gpus_milli + after.gpus_milli - before.gpus_milli)
    if before.allocated_milli != after.allocated_milli:
        journal.set(pool, "allocated_milli", pool.allocated_milli + after.allocated_milli - before.allocated_milli)


def _move_bit(journal: Journal, table: dict[int, int], bit: int, old: int | None, new: int | None) -> None:
    if old is not None:
        rest = table[old] ^ bit
        if rest:
            journal.put(table, old, rest)
        else:
            journal.drop(table, old)
    if new is not None:
        journal.put(table, new, table.get(new, 0) | bit)


def recount(nodes: dict[str, Node]) -> dict[str, PoolCapacity]:
    """The same indices counted from nothing: what the indices by delta must equal at any time."""
    journal = Journal()
    pools: dict[str, PoolCapacity] = {}
    for node_id in sorted(nodes):
        pools.setdefault(nodes[node_id].pool, PoolCapacity()).ids.append(node_id)
    for pool in pools.values():
        for node_id in pool.ids:
            move(journal, pool, node_id, NOTHING, share_of(nodes[node_id]))
    return pools
