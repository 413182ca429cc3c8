"""A node on which one job after another fails is taken out of use, visibly, until an operator uncordons it.

Counted is what different jobs did: a job that is tried again on the same node counts once, and one that ends well
begins the row anew. A loss by infrastructure is no failure. The rows are in the writer's memory: a new writer begins
them anew.

Jobs fail for reasons of their own, too. So no more than a tenth of a pool (and at least one node) is taken out.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.placement.policy.turn import RunEnd, Turn
from shared.cluster.node import Node
from shared.cluster.state import CellState
from shared.events.effects import NodeChanged
from shared.events.values import NodeStatus

FAILURES = 5
"""So many different jobs must fail on a node in a row."""

POOL_PERCENT_MOST = 10
"""The part of a pool's nodes that may be in quarantine."""


class Quarantine:
    """The row of failures of each node. What is tried in a cycle is kept or undone with its decision."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, ...]] = {}
        self._shut: dict[str, None] = {}
        self._ended: Sequence[RunEnd] = ()
        self._shutting: list[str] = []

    def judge(self, turn: Turn) -> None:
        """Take out the nodes whose row is full with what this turn has settled."""
        self._ended, self._shutting = turn.ended, []
        for node_id, row in self._after(turn.ended).items():
            node = turn.state.nodes[node_id]
            if len(row) >= FAILURES and node.status is NodeStatus.READY and self._has_room(turn.state, node):
                turn.do(_quarantined(node, row))
                self._shutting.append(node_id)

    def _after(self, ended: Sequence[RunEnd]) -> dict[str, tuple[str, ...]]:
        """The rows of the nodes on which something ended, with these ends."""
        rows: dict[str, tuple[str, ...]] = {}
        for end in ended:
            row = rows.get(end.node, self._rows.get(end.node, ()))
            if end.is_good and not row:
                continue
            if end.is_good:
                row = ()
            elif end.job not in row:
                row = (*row, end.job)[-FAILURES:]
            rows[end.node] = row
        return rows

    def _has_room(self, state: CellState, node: Node) -> bool:
        known = (state.nodes.get(other) for other in (*self._shut, *self._shutting))
        shut = sum(other is not None and other.pool == node.pool for other in known)
        nodes = sum(other.pool == node.pool for other in state.nodes.values())
        return shut < max(1, nodes * POOL_PERCENT_MOST // 100)

    def keep(self) -> None:
        """The decision is in force, or nothing came of the cycle."""
        for node_id, row in self._after(self._ended).items():
            if row:
                self._rows[node_id] = row
            else:
                self._rows.pop(node_id, None)
        self._shut.update(dict.fromkeys(self._shutting))
        self.undo()

    def changed(self, node_id: str, status: NodeStatus) -> None:
        """A decision in force says what the node is now: its row begins anew."""
        self._rows.pop(node_id, None)
        if status is NodeStatus.READY:
            self._shut.pop(node_id, None)

    def forget(self, node_id: str) -> None:
        """A decision in force says that there is no such node any more."""
        self._rows.pop(node_id, None)
        self._shut.pop(node_id, None)

    def undo(self) -> None:
        """Forget what was tried."""
        self._ended, self._shutting = (), []


def _quarantined(node: Node, row: tuple[str, ...]) -> NodeChanged:
    named = ", ".join(row)
    if len(named) > 300:  # noqa: PLR2004 - a reason has at most 500 characters
        named = f"{named[:300]}..."
    reason = f"quarantined: {len(row)} different jobs in a row failed here: {named}"
    return NodeChanged(
        spec=node.spec, boot=node.boot, status=NodeStatus.CORDONED, reason=reason, seq=node.seq, offered=node.offered
    )
