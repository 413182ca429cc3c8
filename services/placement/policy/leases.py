"""Which nodes are silent beyond their lease. Times are wall time since any origin, as the writer itself measured them.

Trouble of the control plane must not look like the death of nodes: when many fall silent at once, or the writer itself
was away, nothing expires and the clocks begin anew.
"""

from __future__ import annotations

from shared.cluster.state import CellState
from shared.events.values import NodeStatus

BREAKER_PERCENT = 20
BREAKER_NODES = 3


class Leases:
    """When each node was last heard of by this writer.

    No living node was heard of before `_oldest_ms`; so all of them are looked at now and then only, not in each cycle.
    """

    def __init__(self) -> None:
        self._heard_ms: dict[str, int] = {}
        self._looked_ms = 0
        self._oldest_ms = 0
        self.is_frozen = False

    def begin(self, state: CellState, wall_ms: int) -> None:
        """Every lease starts now: for a writer that takes over, or that was away."""
        self._heard_ms = dict.fromkeys(sorted(state.nodes), wall_ms)
        self._looked_ms = self._oldest_ms = wall_ms

    def enter(self, node_id: str, wall_ms: int) -> None:
        """The node stands in the log. Its lease begins if it is new there; what others change about it renews none."""
        self._heard_ms.setdefault(node_id, wall_ms)

    def heard(self, node_id: str, wall_ms: int) -> None:
        """The node lives."""
        self._heard_ms[node_id] = wall_ms

    def expired(self, state: CellState, wall_ms: int) -> list[str]:
        """The nodes to be declared lost now, by id."""
        lease_ms = state.policy.lease_wall_ms
        if wall_ms - self._looked_ms > lease_ms // 2:
            self.begin(state, wall_ms)
            return []
        self._looked_ms = wall_ms
        silent_since_ms = wall_ms - lease_ms - state.policy.lease_margin_wall_ms
        if self._oldest_ms >= silent_since_ms:
            return []
        living = {node: heard_ms for node, heard_ms in self._heard_ms.items() if _lives(state, node)}
        self._oldest_ms = min(living.values(), default=wall_ms)
        silent = [node for node, heard_ms in living.items() if heard_ms < silent_since_ms]
        self.is_frozen = len(silent) >= BREAKER_NODES and len(silent) * 100 > BREAKER_PERCENT * len(living)
        return [] if self.is_frozen else sorted(silent)


def _lives(state: CellState, node_id: str) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and node.status is not NodeStatus.LOST
