"""Nothing starts on a node that would still run there when its maintenance begins, by what the job has declared."""

from __future__ import annotations

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.simulator.history.books import Books, JobPage, NodePage


def planned(books: Books, effect: e.MaintenanceSet) -> None:
    """A plan, or the end of one: the node is what its operator wants again."""
    node = books.nodes[effect.node]
    if node.in_maintenance and node.status is NodeStatus.DRAINING:
        node.status = node.wanted
    is_plan = effect.begin_ms is not None and effect.end_ms is not None
    node.maintenance_ms = (effect.begin_ms or 0, effect.end_ms or 0) if is_plan else None
    node.in_maintenance = False


def began(books: Books, effect: e.MaintenanceBegan) -> None:
    """Nothing new starts there from here on."""
    node = books.nodes[effect.node]
    node.status, node.in_maintenance = NodeStatus.DRAINING, True


def outlasted(books: Books, page: JobPage, node: NodePage) -> str | None:
    """Why a job may not start on this node for the sake of its maintenance, or None."""
    if node.maintenance_ms is None or node.in_maintenance:
        return None
    spec = page.spec
    declared = [
        ms for ms in (spec.max_run_ms, spec.estimate_run_ms, books.policy.default_run_estimate_ms) if ms is not None
    ]
    if books.at_ms + declared[0] <= node.maintenance_ms[0]:
        return None
    return f"job {spec.id} starts on node {node.spec.id}, whose maintenance begins at {node.maintenance_ms[0]}"
