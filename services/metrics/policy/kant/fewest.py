"""On how few nodes and leaf groups a gang could lie if its pool were empty: the ideal that JTTED measures against.

Counted are the nodes that the pool has, whatever their state: a lost node makes no placement better than it was.
Only GPUs are looked at, not CPU and memory.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from fallow.services.metrics.policy.effect_dispatch import Acts
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, NodeSpec

Leaf = tuple[str | None, str | None, str | None]
"""A leaf group by its name and those of the units around it. Nodes that name no leaf are one group."""


class Kind(NamedTuple):
    """Workers that can lie in the same places: the pool, the GPU type, and what each of them holds."""

    pool: str
    gpu_type: str
    worker_milli: int


class Room(NamedTuple):
    """How many workers the k largest nodes, and the k largest leaf groups, hold together, for k = 1, 2, ..."""

    nodes: list[int]
    leaves: list[int]


def leaf_of(spec: NodeSpec) -> Leaf:
    """The leaf group of a node."""
    at = spec.position
    return (at.superspine, at.spine, at.leaf)


class Fewest:
    """The ideal of each kind of worker, counted once and kept until the nodes change."""

    def __init__(self) -> None:
        self._known: dict[Kind, Room] = {}
        self._specs: dict[str, NodeSpec] = {}
        self.acts: Acts = {
            e.NodeChanged: self._changed,
            e.NodeRemoved: self._removed,
            e.NodeLent: self._moved,
            e.NodeReclaimed: self._moved,
        }

    def count(self, state: CellState, kind: Kind, workers: int) -> tuple[int, int]:
        """The fewest nodes, and the fewest leaf groups, for so many workers; all there are where they hold fewer."""
        room = self._known.get(kind)
        if room is None:
            room = self._known[kind] = _room(state, kind)
        return _first(room.nodes, workers), _first(room.leaves, workers)

    def _changed(self, _: CellState, effect: e.NodeChanged, __: int) -> None:
        """A node that only comes and goes leaves the ideal as it was."""
        before = self._specs.get(effect.spec.id)
        self._specs[effect.spec.id] = effect.spec
        if before is None or before != effect.spec:
            self._known.clear()

    def _removed(self, _: CellState, effect: e.NodeRemoved, __: int) -> None:
        self._specs.pop(effect.node, None)
        self._known.clear()

    def _moved(self, _: CellState, __: e.Effect, ___: int) -> None:
        self._known.clear()


def _room(state: CellState, kind: Kind) -> Room:
    by_leaf: dict[Leaf, int] = {}
    by_node = []
    for node in state.nodes.values():
        workers = _holds(node, kind.worker_milli)
        if workers and node.pool == kind.pool and node.spec.gpu_type == kind.gpu_type:
            by_node.append(workers)
            leaf = leaf_of(node.spec)
            by_leaf[leaf] = by_leaf.get(leaf, 0) + workers
    return Room(*(list(accumulate(sorted(found, reverse=True))) for found in (by_node, by_leaf.values())))


def _holds(node: Node, worker_milli: int) -> int:
    if worker_milli < GPU:
        return node.spec.gpus * (GPU // max(1, worker_milli))
    return node.spec.gpus // (worker_milli // GPU)


def _first(together: list[int], workers: int) -> int:
    return min(bisect_left(together, workers) + 1, max(1, len(together)))
