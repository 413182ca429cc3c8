"""Maintenance of nodes that is known ahead: plans, their beginning, and their end."""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.lifecycle.nodes.nodes import empty
from fallow.shared.cluster.model.node import Node
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import CancelMaintenance, PlanMaintenance


def operate(decision: DecisionBuilder, event: PlanMaintenance | CancelMaintenance) -> str | None:
    """Plan maintenance, or give a plan up. Why that cannot be, or None."""
    node = decision.state.nodes.get(event.node)
    if node is None:
        return "there is no such node"
    if isinstance(event, CancelMaintenance):
        if node.maintenance_ms is None:
            return "no maintenance of it is planned"
        decision.emit(e.MaintenanceSet(node=node.id))
        return None
    if event.begin_ms >= event.end_ms:
        return "it would end before it begins"
    if event.end_ms <= decision.now_ms:
        return f"it would be over: the cell's time is {decision.now_ms}"
    decision.emit(e.MaintenanceSet(node=node.id, begin_ms=event.begin_ms, end_ms=event.end_ms, reason=event.reason))
    if event.begin_ms <= decision.now_ms:
        begin(decision, node)
    return None


def begin(decision: DecisionBuilder, node: Node) -> bool:
    """The time has come: what runs on the node stops and is queued again. A lost node is emptied when it is back.
    One that an operator took back since it began is left alone: a new writer comes by here again. Whether the record
    had room for all of that.
    """
    if node.status is NodeStatus.LOST:
        return True
    if not node.in_maintenance:
        decision.emit(e.MaintenanceBegan(node=node.id))
    elif node.status is not NodeStatus.DRAINING:
        return True
    return empty(decision, node)


def act(decision: DecisionBuilder, node: Node, at_ms: int) -> bool:
    """A time at which the maintenance of the node begins or ends, if it was not planned anew since. Whether all is done
    that is due then.
    """
    window = node.maintenance_ms
    if window is None or at_ms not in window:
        return True
    if decision.now_ms >= window[1]:
        decision.emit(e.MaintenanceSet(node=node.id))
        return True
    return begin(decision, node)
