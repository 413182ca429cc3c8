"""Nodes that are gone for good: an operator says that they are lost, or they are forgotten.

To forget a node is to forget what was wanted of it: it would come back as a new one, ready for work. So time alone
removes no node that an operator has taken out of use, that has maintenance before it, or that is in quarantine for
failed jobs. Nor does it remove one whose losses still count: one that flaps would never come to its quarantine. An
operator may.
"""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.nodes import declared_lost
from fallow.services.placement.lifecycle.nodes.quarantine import losses_count, rest_is_over
from fallow.shared.cluster.model.node import Node
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import DeclareLost, RemoveNode

AGAIN_MS = 60_000
"""After so long a node that could not be forgotten is looked at again."""

STOP_IT = (
    "Stop its agent (of a virtual node: docs/operations.md, Take a node out), wait until it is lost, then try again."
)
WAIT = "Wait until it is lost, then try again."


def operate(decision: DecisionBuilder, event: DeclareLost | RemoveNode) -> str | None:
    """Take a node for lost, or forget it. Why that cannot be, or None."""
    node = decision.state.nodes.get(event.node)
    if node is None:
        return "there is no such node"
    if isinstance(event, RemoveNode):
        why = _why_it_stays(node)
        if why is None:
            _remove(decision, node)
        return why
    if node.status is NodeStatus.LOST:
        return "the node is lost"
    declared_lost(decision, node, event)
    return None


def _why_it_stays(node: Node) -> str | None:
    if node.status is not NodeStatus.LOST:
        says, then = ("silent, but not lost yet", WAIT) if node.silent_wall_ms else ("still reports", STOP_IT)
        return f"not removed: it is {node.status} and {says}. {then}"
    if node.jobs:
        return f"job {min(node.jobs)} still holds places there, until all of its workers have stopped"
    if node.room:
        return "room there is held for a waiting job"
    return f"it is lent (loan {node.loan})" if node.loan is not None else None


def forget(decision: DecisionBuilder, node: Node | None) -> int | None:
    """The node may have been lost for so long that it is forgotten. When to look again, or None."""
    after_ms = decision.state.policy.remove_lost_ms
    if node is None or node.lost_ms is None or not after_ms:
        return None
    if decision.now_ms < node.lost_ms + after_ms:
        return node.lost_ms + after_ms
    is_kept = losses_count(node, decision.now_ms) or _is_out_of_use(node, decision.now_ms)
    if is_kept or _why_it_stays(node) is not None:
        return decision.now_ms + AGAIN_MS
    _remove(decision, node)
    return None


def _remove(decision: DecisionBuilder, node: Node) -> None:
    """The node is no more. Its last runs may have ended by other words, while the record had no room to see that it is
    lost altogether.
    """
    decision.emit(e.NodeRemoved(node=node.id))
    decision.losing.pop(node.id, None)


def _is_out_of_use(node: Node, now_ms: int) -> bool:
    """Whether a lost node would get no new work if it came back, or not until its maintenance or its rest is over."""
    is_ordered = node.maintenance_ms is not None or node.wanted is not NodeStatus.READY
    if not node.quarantined:
        return is_ordered
    return node.maintenance_ms is not None or not rest_is_over(node, now_ms)
