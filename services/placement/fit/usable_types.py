"""The GPU types that a job of any type could get: those of which there are nodes that could hold it if they were empty.

A type whose nodes have too little memory for it, too few CPUs or GPUs, or not its labels, is none that it waits for,
whatever is idle of it, or guaranteed to its tenant. Where no type could hold the job, all count: then it is something
else that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fallow.services.placement.fit.empty_capacity import could_hold_in_unit, could_hold_later, goes_to_several_pools
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.gpu_types import gpu_types_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec

Types = dict[str, None]


def types_for(state: CellState, spec: JobSpec) -> Types:
    """The types that a job could get, as it stands in line: the one that it names, or those of its pools' that could
    hold it. Of a job that no type could hold by itself these are all that could hold one of its workers.
    """
    if spec.gpu_type is not None:
        return {spec.gpu_type: None}
    names = spec.pools or sorted(state.pools)
    return _usable(state, [state.pools[name] for name in names if name in state.pools], spec)


def types_in(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Types:
    """The GPU types that the job could use in one pool."""
    return {spec.gpu_type: None} if spec.gpu_type is not None else _usable(state, [pool], spec)


def types_of_workers(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Types:
    """The types of which the pool has nodes that could hold a worker of a job of any type."""
    types = gpu_types_of(state, pool)
    return types if len(types) == 1 else _of_a_worker(state, [pool], spec) or types


def _usable(state: CellState, pools: Sequence[PoolCapacity], spec: JobSpec) -> Types:
    types = {gpu_type: None for pool in pools for gpu_type in gpu_types_of(state, pool)}
    if len(types) <= 1:
        return types
    whole = {} if goes_to_several_pools(spec) else _that_hold(state, pools, spec)
    return whole or _of_a_worker(state, pools, spec) or types


def _of_a_worker(state: CellState, pools: Sequence[PoolCapacity], spec: JobSpec) -> Types:
    """The types of which any pool could hold a worker: where it requires units of the network that could be, in one of
    these.
    """
    in_units = _of_which(state, pools, lambda pool, each: could_hold_in_unit(state, pool, each, spec))
    return in_units or _that_hold(state, pools, replace(spec, workers=1, workers_min=None, topology=None))


def _that_hold(state: CellState, pools: Sequence[PoolCapacity], spec: JobSpec) -> Types:
    """The types of which a single pool could hold all of this."""
    return _of_which(state, pools, lambda pool, each: could_hold_later(state, pool, replace(spec, gpu_type=each)))


def _of_which(state: CellState, pools: Sequence[PoolCapacity], holds: Callable[[PoolCapacity, str], bool]) -> Types:
    found: Types = {}
    for pool in pools:
        for gpu_type in gpu_types_of(state, pool):
            if gpu_type not in found and holds(pool, gpu_type):
                found[gpu_type] = None
    return found
