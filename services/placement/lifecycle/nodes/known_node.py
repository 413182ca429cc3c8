"""What becomes of a node that is known: the only place that says so in a `NodeChanged`.

What of a node cannot change while places on it are held is offered until they are free. Whether any are held is looked
at here, when the effect is made: what came before it in the same turn may have freed them.
"""

from __future__ import annotations

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.effects import MaintenanceBegan, NodeChanged
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeSpec, NodeStatus


def become(node: Node, status: NodeStatus, spec: NodeSpec | None = None) -> NodeChanged:
    """The node in this status and its boot, with no reason, no deadline and no quarantine. `spec` is what it says that
    it is, if it says so now.
    """
    now, offered = fitted(node, spec or node.offered or node.spec)
    return NodeChanged(spec=now, boot=node.boot, status=status, seq=node.seq, offered=offered)


def keep_status(decision: DecisionBuilder, node: Node, spec: NodeSpec, seq: int) -> None:
    """The node says that it is this; what is wanted of it stays, and its maintenance goes on."""
    # While it is emptied for its maintenance, its status is not what is wanted of it.
    status = node.wanted if _is_emptied(node) else node.status
    kept = replace(
        become(node, status, spec),
        drain_deadline_ms=node.drain_deadline_ms,
        reason=node.reason,
        seq=seq,
        quarantined=node.quarantined,
        quarantined_until_ms=node.quarantined_until_ms,
    )
    _emit(decision, node, kept)


def end_quarantine(decision: DecisionBuilder, node: Node, spec: NodeSpec, seq: int) -> None:
    """The node says that it is this, and its quarantine is over: it works, or goes on with its maintenance. A lost
    node, and one that a person has closed, stays as it is.
    """
    if node.status is NodeStatus.LOST or not node.quarantined:
        keep_status(decision, node, spec, seq)
    else:
        _emit(decision, node, replace(become(node, NodeStatus.READY, spec), seq=seq))


def _is_emptied(node: Node) -> bool:
    """Whether the node is emptied for its maintenance, whatever else is wanted of it."""
    return node.in_maintenance and node.status is NodeStatus.DRAINING


def _emit(decision: DecisionBuilder, node: Node, changed: NodeChanged) -> None:
    """The node becomes this, and its maintenance goes on."""
    goes_on = _is_emptied(node)
    decision.emit(changed)
    if goes_on:
        decision.emit(MaintenanceBegan(node=node.id))


def fitted(node: Node, spec: NodeSpec) -> tuple[NodeSpec, NodeSpec | None]:
    """What the node may be now, and what it is to become when the places on it are free, if it has other hardware."""
    if not node.is_used or _shape(spec) == _shape(node.spec):
        return spec, None
    return replace(node.spec, labels=spec.labels, taints=spec.taints), spec


def _shape(spec: NodeSpec) -> tuple[object, ...]:
    """What of a node cannot change while places on it are held."""
    return spec.pool, spec.gpus, spec.gpu_type, spec.cpu_milli, spec.memory_mib
