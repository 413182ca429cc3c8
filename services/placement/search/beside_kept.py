"""A pool as it is beside all that is kept there: a second set of its nodes, on which every kept place counts as in use.

To let all kept places count as in use for one search, and free again, costs as much as there are nodes. The second set
is brought to what the nodes are by what has changed of them and of what is kept on them; for a job that may take some
of the kept places itself, only their nodes are others while it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TypeVar

from fallow.services.placement.owners.kept_index import KeptIndex
from fallow.services.placement.policy.frag_aware.changed_nodes import seen_of
from fallow.shared.cluster.capacity.capacity import Capacity, PoolCapacity
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import InUse, KeptPlace, in_use, put_in_use, take_place

BESIDE = "beside what is kept"
"""The name of this view of a pool."""

Found = TypeVar("Found")

_FIELDS = tuple(Node.__dataclass_fields__)


class BesideKept:
    """The second set of nodes of one pool."""

    __slots__ = ("_capacity", "_index", "_nodes", "_noted", "_seen", "_state", "is_stale")

    def __init__(self, state: CellState, pool: PoolCapacity, index: KeptIndex) -> None:
        self.is_stale, self._index, self._state = False, index, state
        self._nodes = {node_id: copy(state.nodes[node_id]) for node_id in pool.ids}
        self._capacity = Capacity(self._nodes)
        self._capacity.effort = state.capacity.effort
        self._capacity.void()
        self._noted: dict[str, None] = {}
        self._seen: dict[str, tuple[object, ...]] = {}
        index.moved |= dict.fromkeys(index.on)

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        self._noted[node.spec.id] = None

    def follow(self, state: CellState, index: KeptIndex) -> CellState:
        """Bring the nodes to what they are now, and to what is kept on them now. The state with these nodes."""
        self._state = copy(state)
        self._state.nodes, self._state.capacity = self._nodes, self._capacity
        if index is not self._index:
            before = self._index
            index.moved |= dict.fromkeys((*before.on, *before.moved, *index.on))
            self._index = index
        for node_id in self._noted | index.moved:
            node = state.nodes[node_id]
            seen = (node.spec, *seen_of(node))
            if node_id in index.moved or seen != self._seen.get(node_id):
                self._seen[node_id] = seen
                self._put(node, index.kept_on(node_id))
        self._noted.clear()
        index.moved.clear()
        return self._state

    def _put(self, now: Node, kept: Iterable[KeptPlace]) -> None:
        """Make a node what it is now when these places count as in use."""
        node = self._capacity.noted[now.spec.id] = self._nodes[now.spec.id]
        for field in _FIELDS:
            setattr(node, field, getattr(now, field))
        for place in kept:
            take_place(node, place)

    def leave(self, now: Mapping[str, Node], own: Mapping[str, list[KeptPlace]]) -> list[tuple[Node, InUse]]:
        """Let only these places of these nodes count as in use. The nodes on which that makes a difference, with what
        was in use of them before.
        """
        changed: list[tuple[Node, InUse]] = []
        for node_id, kept in own.items():
            node = self._nodes[node_id]
            before = in_use(node)
            put_in_use(node, in_use(now[node_id]))
            for place in kept:
                take_place(node, place)
            if in_use(node) != before:
                self._capacity.noted[node_id] = node
                changed.append((node, before))
        return changed

    def put_back(self, changed: Iterable[tuple[Node, InUse]]) -> None:
        """All that is kept counts as in use on these nodes again."""
        for node, before in changed:
            put_in_use(node, before)
            self._capacity.noted[node.spec.id] = node


def search_beside(
    state: CellState,
    pool: PoolCapacity,
    index: KeptIndex,
    own: Mapping[str, list[KeptPlace]],
    search: Callable[[CellState, PoolCapacity], Found],
) -> Found:
    """What a search finds in a pool when all that is kept there counts as in use; on the nodes of `own` only these
    places.
    """
    found = pool.views.get(BESIDE)
    if not isinstance(found, BesideKept):
        found = pool.views[BESIDE] = BesideKept(state, pool, index)
    beside = found.follow(state, index)
    changed = found.leave(state.nodes, own)
    try:
        return search(beside, beside.pools[state.nodes[pool.ids[0]].pool])
    finally:
        found.put_back(changed)
