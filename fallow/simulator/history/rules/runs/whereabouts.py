"""Whether a job may be on its nodes at all: their labels and taints, their place in the network, and which other jobs
are there, by an arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from fallow.shared.events.fields.values import JobSpec, Level, NodeSpec, Wish
from fallow.simulator.history.books import Books, NodePage

LEVELS = (Level.NODE, Level.DOMAIN, Level.LEAF, Level.SPINE, Level.SUPERSPINE)


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


def scattered(spec: JobSpec, nodes: Sequence[NodeSpec]) -> str | None:
    """Why a gang with these nodes, by rank, has not the place in the network that it requires, or None."""
    wish = spec.topology
    if wish is None or wish.wish is not Wish.REQUIRED:
        return None
    size = wish.slice_workers or spec.workers
    for first in range(0, len(nodes), size):
        units = {unit_of(node)[LEVELS.index(wish.level) :] for node in nodes[first : first + size]}
        if len(units) > 1 or any(unit[0] is None for unit in units):
            return f"has ranks {first} to {first + size - 1} in more than one {wish.level}, or in one that is not known"
    return None


def unit_of(node: NodeSpec) -> tuple[str | None, ...]:
    """The units around a node, from near to far."""
    at = node.position
    return (node.id, at.domain, at.leaf, at.spine, at.superspine)
