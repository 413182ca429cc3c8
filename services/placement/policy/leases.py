"""Which nodes are silent beyond their lease. Times are wall time since any origin, as the writer itself measured them.

A node is silent only as far as topic `nodes` is read: a lease runs out as of the moment at which the shell asked where
the topic ends, once all before that end is taken in. So neither lag nor a log that is away kills a node. Time in which
the writer did not listen counts for no node. And trouble of the control plane must not look like the death of nodes:
when many fall silent at once, nothing expires.
"""

from __future__ import annotations

from services.placement.policy.listening import Listening
from shared.cluster.state import CellState
from shared.events.values import NodeStatus

BREAKER_PERCENT = 20
BREAKER_NODES = 3


class Leases:
    """When each node was last heard of by this writer.

    No living node was heard of before `_oldest_ms`; so all of them are looked at now and then only, not in each cycle.
    """

    def __init__(self) -> None:
        self.listening = Listening()
        self._heard_ms: dict[str, int] = {}
        self._oldest_ms = 0
        self.is_frozen = False

    def begin(self, state: CellState, wall_ms: int) -> None:
        """Every lease starts now: for a writer that takes over."""
        self.listening = Listening(wall_ms)
        self._heard_ms = dict.fromkeys(sorted(state.nodes), wall_ms)
        self._oldest_ms = wall_ms

    def enter(self, node_id: str, wall_ms: int) -> None:
        """The node stands in the log. Its lease begins if it is new there; what others change about it renews none."""
        self._heard_ms.setdefault(node_id, wall_ms)

    def heard(self, node_id: str, wall_ms: int) -> None:
        """The node lives."""
        self._heard_ms[node_id] = wall_ms

    def asked(self, state: CellState, end: int, asked_ms: int) -> None:
        """Topic `nodes` ended at this offset when the shell asked."""
        self.listening.asked(end, asked_ms, state.policy.lease_wall_ms // 2)

    def reached(self, next_offset: int) -> None:
        """Everything in topic `nodes` before this offset is taken in. Time that was missed counts for no node."""
        missed_ms, as_of_ms = self.listening.reached(next_offset), self.listening.as_of_ms
        if missed_ms and as_of_ms is not None:
            heard = self._heard_ms
            for node_id, heard_ms in heard.items():
                heard[node_id] = max(heard_ms, min(as_of_ms, heard_ms + missed_ms))
            self._oldest_ms = min(heard.values(), default=as_of_ms)

    def expired(self, state: CellState) -> list[str]:
        """The nodes to be declared lost now, by id."""
        as_of_ms = self.listening.as_of_ms
        if as_of_ms is None:
            return []
        silent_since_ms = as_of_ms - state.policy.lease_wall_ms - state.policy.lease_margin_wall_ms
        if self._oldest_ms >= silent_since_ms:
            return []
        living = {node: heard_ms for node, heard_ms in self._heard_ms.items() if _lives(state, node)}
        self._oldest_ms = min(living.values(), default=as_of_ms)
        silent = [node for node, heard_ms in living.items() if heard_ms < silent_since_ms]
        self.is_frozen = len(silent) >= BREAKER_NODES and len(silent) * 100 > BREAKER_PERCENT * len(living)
        return [] if self.is_frozen else sorted(silent)


def _lives(state: CellState, node_id: str) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and node.status is not NodeStatus.LOST
