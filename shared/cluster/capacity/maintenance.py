"""Maintenance known ahead: which nodes a job would outlast, by what it has declared of its run."""

from __future__ import annotations

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec


def longest_run_ms(state: CellState, spec: JobSpec) -> int:
    """How long the job may run at most by its own word. Of one that says nothing the cell's lead time is assumed: with
    a lead of 0 it starts until the window begins, and is stopped and queued again then.
    """
    if spec.max_run_ms is not None:
        return spec.max_run_ms
    return state.policy.default_run_estimate_ms if spec.estimate_run_ms is None else spec.estimate_run_ms


def shut_for(state: CellState, pool: PoolCapacity, spec: JobSpec) -> tuple[str, ...]:
    """The nodes of the pool whose maintenance begins before a run of this job, started now, would be over."""
    over_ms = max(state.at_ms, state.clock_ms) + longest_run_ms(state, spec)
    ids = pool.ids
    shut = []
    for node_id in sorted(state.maintenance_starts):
        number = pool.number(node_id)
        if state.maintenance_starts[node_id] < over_ms and number < len(ids) and ids[number] == node_id:
            shut.append(node_id)
    return tuple(shut)
