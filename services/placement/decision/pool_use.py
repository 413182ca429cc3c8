"""How many nodes of each pool are not lost, and how many of these are in quarantine, as a decision goes on.

It is counted once for a decision: where thousands of nodes come back at once each of them asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus


class PoolUse:
    """Follows the effects of a decision that is being made."""

    def __init__(self, state: CellState, effects: Sequence[e.AnyEffect]) -> None:
        self._state, self._effects, self._seen = state, effects, len(effects)
        self._of: dict[str, tuple[str, bool]] = {}
        self._living, self._out = Counter[str](), Counter[str]()
        for node_id in state.nodes:
            self._note(node_id)

    def others(self, node: Node, pool: str) -> tuple[int, int]:
        """How many other nodes of this pool are not lost, and how many of them are in quarantine."""
        self._follow()
        own, is_out = self._of.get(node.id, ("", False))
        is_here = own == pool
        return self._living[pool] - is_here, self._out[pool] - (is_here and is_out)

    def _follow(self) -> None:
        for effect in self._effects[self._seen :]:
            if isinstance(effect, e.NodeChanged):
                self._note(effect.spec.id)
            elif isinstance(effect, e.LeaseExpired):  # before a node is removed it is lost
                self._note(effect.node)
        self._seen = len(self._effects)

    def _note(self, node_id: str) -> None:
        """Count the node as it is now, and no more as it was."""
        pool, was_out = self._of.pop(node_id, ("", False))
        if pool:
            self._living[pool] -= 1
            self._out[pool] -= was_out
        node = self._state.nodes.get(node_id)
        if node is not None and node.status is not NodeStatus.LOST:
            self._of[node_id] = (node.pool, node.quarantined)
            self._living[node.pool] += 1
            self._out[node.pool] += node.quarantined
