"""The GPU types of a pool's nodes: nearly always one, more where nodes of another type are lent to it."""

from __future__ import annotations

from shared.cluster.capacity import PoolCapacity
from shared.cluster.node import Node
from shared.cluster.state import CellState

_NAME = "gpu types"


class GpuTypes:
    """An index over a pool: every type that a node of it has, or had since it was made."""

    is_stale = False

    def __init__(self, types: dict[str, None]) -> None:
        self.types = types

    def note(self, node: Node, free: int) -> None:  # noqa: ARG002 - every index is told it
        """A node may be of another type now."""
        self.types[node.spec.gpu_type] = None


def gpu_types_of(state: CellState, pool: PoolCapacity) -> dict[str, None]:
    """The types in the order of the nodes' ids."""
    view = pool.views.get(_NAME)
    if not isinstance(view, GpuTypes):
        view = pool.views[_NAME] = GpuTypes({state.nodes[node].spec.gpu_type: None for node in pool.ids})
    return view.types


def idle_milli(state: CellState, gpu_type: str) -> int:
    """What nobody uses of the healthy devices of this type, on all nodes that are not lost. Each start makes it less by
    just what the start takes, so that within a walk what quotas leave only shrinks.
    """
    pools = [pool for pool in state.pools.values() if gpu_type in gpu_types_of(state, pool)]
    return sum(pool.gpus_milli - pool.allocated_milli for pool in pools)
