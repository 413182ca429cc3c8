"""Where a waiting gang could be, as groups of nodes of which one must hold all of it: pools, or the units of the
network that it requires.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import reach_of
from fallow.shared.cluster.capacity.hardware import unit_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, Wish


class Region(NamedTuple):
    """Nodes with what is free of their devices by now, in the order of their numbers in the pool."""

    nodes: dict[str, int]


def regions_for(state: CellState, spec: JobSpec, gpu_type: str) -> list[Region]:
    """The regions of this GPU type that the job could use if nothing ran there."""
    found: list[Region] = []
    wish = spec.topology
    level = wish.level if wish is not None and wish.wish is Wish.REQUIRED and not wish.slice_workers else None
    for name, mask in reach_of(state, spec).items():
        units: dict[tuple[str, ...], dict[str, int]] = {}
        for number, node_id in enumerate(state.pools[name].ids):
            node = state.nodes[node_id]
            if mask >> number & 1 and node.spec.gpu_type == gpu_type and node.is_schedulable:
                units.setdefault(unit_of(node.spec, level) if level else (), {})[node_id] = free_on(node)
        found += [Region(nodes) for nodes in units.values()]
    return found


def free_on(node: Node) -> int:
    """The devices that a new job could have there now: none where another one is alone."""
    return node.gpus_free if node.alone is None else 0
