"""Whether a job may be on a node at all: its labels and taints, and who else is there, by an arithmetic of its own."""

from __future__ import annotations

from services.simulator.history.books import Books, NodePage
from shared.events.values import JobSpec, NodeSpec


def wrong_node(spec: JobSpec, node: NodeSpec) -> str | None:
    """Why labels or taints keep new workers of the job off the node, or None."""
    hated = sorted(set(node.taints).difference(spec.tolerations))
    if hated:
        return f"starts on node {node.id}, whose taint {hated[0]} it does not tolerate"
    broken = [rule for rule in spec.node_labels if not _is_kept(rule, node.labels)]
    return f"starts on node {node.id}, whose labels do not keep {broken[0]}" if broken else None


def _is_kept(rule: str, labels: dict[str, str]) -> bool:
    if rule.startswith("!"):
        return rule[1:] not in labels
    if "!=" in rule:
        key, values = rule.split("!=")
        return labels.get(key) not in values.split("|")
    if "=" in rule:
        key, values = rule.split("=")
        return labels.get(key) in values.split("|")
    return rule in labels


def unwanted_company(books: Books, spec: JobSpec, node: NodePage) -> str | None:
    """Why the job and those that are on the node may not be there together, or None."""
    others = [job for job in node.workers if job != spec.id]
    alone = [job for job in others if job in books.jobs and books.jobs[job].spec.exclusive]
    if alone:
        return f"starts on node {node.spec.id}, which job {alone[0]} holds alone"
    if spec.exclusive and others:
        return f"starts on node {node.spec.id} to be alone there, where job {others[0]} is"
    return None
