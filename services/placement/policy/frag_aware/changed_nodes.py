"""Which nodes have changed since somebody looked last, as far as it matters to who looks for room on them.

A pool's indices are told of every node that may have changed, also of one that is as it was: a search that counted
places as in use, or a decision that was undone.
"""

from __future__ import annotations

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState

CHANGED = "changed"
"""The name of this view of a pool."""

Seen = tuple[object, ...]


class _Noted:
    """The nodes of a pool that may have changed, and what each was when it was looked at last."""

    __slots__ = ("is_stale", "nodes", "seen")

    def __init__(self) -> None:
        self.is_stale = False
        self.nodes: dict[str, Node] = {}
        self.seen: dict[str, Seen] = {}

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        self.nodes[node.spec.id] = node

    def take(self, pool: PoolCapacity) -> int:
        """Those that are others than before, or were not looked at before."""
        nodes, self.nodes, changed = self.nodes, {}, 0
        for node_id, node in nodes.items():
            seen = seen_of(node)
            if self.seen.get(node_id) != seen:
                self.seen[node_id] = seen
                changed |= 1 << pool.number(node_id)
        return changed


def changed_nodes(state: CellState) -> Reach:
    """The nodes of each pool that may be others than when this was asked last. What a node is, its specification apart,
    is not looked at: when a node becomes another one, whoever asks looks at everything anew.
    """
    found: Reach = {}
    for name, pool in state.pools.items():
        noted = pool.views.get(CHANGED)
        if isinstance(noted, _Noted):
            changed = noted.take(pool)
        else:
            pool.views[CHANGED], changed = _Noted(), (1 << len(pool.ids)) - 1
        if changed:
            found[name] = changed
    return found


def forget_changes(state: CellState) -> None:
    """What may have changed since is as it was: places counted as in use for a while."""
    for pool in state.pools.values():
        noted = pool.views.get(CHANGED)
        if isinstance(noted, _Noted):
            noted.nodes = {}


def seen_of(node: Node) -> Seen:
    """All of a node on which it depends whether anything fits there, and the jobs: how long these have run decides
    what is kept.
    """
    return (
        node.is_schedulable,
        node.held,
        node.closed,
        tuple(node.shares.items()),
        node.cpu_free,
        node.memory_free,
        node.alone,
        tuple(node.jobs),
    )
