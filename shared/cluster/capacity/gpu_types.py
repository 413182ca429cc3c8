"""The GPU types of a pool's nodes: nearly always one, more where nodes of another type are lent to it."""

from __future__ import annotations

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.closed_idle import closed_idle, idle_by_type
from fallow.shared.cluster.capacity.hardware import hardware_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU


def gpu_types_of(state: CellState, pool: PoolCapacity) -> dict[str, None]:
    """The types in the order of the nodes' ids."""
    return hardware_of(state, pool).types


def idle_milli(state: CellState, gpu_type: str) -> int:
    """What is unused of the healthy devices of this type, on the nodes that take new work and that no exclusive job
    has alone: what is idle on others is of no use to an owner. Each start makes it less by just what the start takes,
    so that within a walk what quotas leave only shrinks.
    """
    return sum(_idle_milli(state, pool, gpu_type, is_open=True) for pool in state.pools.values())


def idle_anywhere_milli(state: CellState, gpu_type: str) -> int:
    """What is unused on all nodes that are not lost, whether they take new work or not: still none that a job has
    alone.
    """
    return sum(_idle_milli(state, pool, gpu_type, is_open=False) for pool in state.pools.values())


def _idle_milli(state: CellState, pool: PoolCapacity, gpu_type: str, *, is_open: bool) -> int:
    """What is unused in one pool: the whole of it where all of its nodes are of one type."""
    types = gpu_types_of(state, pool)
    if gpu_type not in types:
        return 0
    if len(types) > 1:
        by_type = idle_by_type(state, pool)
        return (by_type.open if is_open else by_type.anywhere).get(gpu_type, 0)
    closed = closed_idle(state, pool)
    return pool.idle_milli - (closed.milli if is_open else closed.alone_milli)


def open_milli(state: CellState, gpu_type: str) -> int:
    """The healthy devices of this type, in use or not, on nodes that no person has closed for new work."""
    found = 0
    for pool in state.pools.values():
        hardware = hardware_of(state, pool)
        for kind, nodes in hardware.kinds.items():
            if kind.gpu_type == gpu_type:
                found += kind.gpus * GPU * (nodes & ~hardware.closed).bit_count()
    return found


def all_milli(state: CellState, gpu_type: str) -> int:
    """The healthy devices of this type, in use or not, on all nodes that are not lost."""
    kinds = [each for pool in state.pools.values() for each in hardware_of(state, pool).kinds.items()]
    return sum(kind.gpus * GPU * nodes.bit_count() for kind, nodes in kinds if kind.gpu_type == gpu_type)
