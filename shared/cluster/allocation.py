"""Taking places and giving them back: the only code that changes what is free."""

from __future__ import annotations

from shared.cluster.capacity import PoolCapacity, insert_node, move, remove_node
from shared.cluster.node import NOTHING, Node, mask_of, share_of
from shared.cluster.quota import charge, over_limit
from shared.cluster.state import CellState
from shared.events.values import GPU, WorkerPlace


def take(state: CellState, tenant: str, job_id: str, places: tuple[WorkerPlace, ...]) -> str | None:
    """Hold these places for a job and charge its tenant. The reason if one cannot be had, or a limit would be passed;
    then some may be held already, so the caller rolls back.
    """
    wanted: dict[str, int] = {}
    touched: dict[str, Node] = {}
    for place in places:
        node = state.nodes.get(place.node)
        if node is None:
            return f"node {place.node} does not exist"
        refusal = node.refusal(place)
        if refusal is not None:
            return f"node {place.node}: {refusal}"
        _hold(state, node, place)
        state.journal.put(node.jobs, job_id, node.jobs.get(job_id, 0) + 1)
        touched[place.node] = node
        gpu_type = node.spec.gpu_type
        wanted[gpu_type] = wanted.get(gpu_type, 0) + place.gpu_milli
    for gpu_type, milli in wanted.items():
        account = over_limit(state.quotas, state.usage, tenant, gpu_type, milli)
        if account is not None:
            return f"{milli} milli-GPUs more would pass the limit of {account}"
        charge(state.journal, state.quotas, state.usage, tenant, gpu_type, milli)
    for node in touched.values():
        reindex(state, node)
    return None


def release(state: CellState, tenant: str, job_id: str, places: tuple[WorkerPlace, ...]) -> None:
    """Give these places back. A device that failed meanwhile stays out of use."""
    journal = state.journal
    given: dict[str, int] = {}
    touched: dict[str, Node] = {}
    for place in places:
        node = state.nodes[place.node]
        _let_go(state, node, place)
        left = node.jobs[job_id] - 1
        if left:
            journal.put(node.jobs, job_id, left)
        else:
            journal.drop(node.jobs, job_id)
        touched[place.node] = node
        gpu_type = node.spec.gpu_type
        given[gpu_type] = given.get(gpu_type, 0) + place.gpu_milli
    for gpu_type, milli in given.items():
        charge(journal, state.quotas, state.usage, tenant, gpu_type, -milli)
    for node in touched.values():
        reindex(state, node)


def _hold(state: CellState, node: Node, place: WorkerPlace) -> None:
    journal = state.journal
    if place.gpu_milli < GPU:
        device = place.devices[0]
        journal.put(node.shares, device, node.shares.get(device, GPU) - place.gpu_milli)
    else:
        journal.set(node, "held", node.held | mask_of(place.devices))
    if place.cpu_milli:
        journal.set(node, "cpu_used", node.cpu_used + place.cpu_milli)
    if place.memory_mib:
        journal.set(node, "memory_used", node.memory_used + place.memory_mib)


def _let_go(state: CellState, node: Node, place: WorkerPlace) -> None:
    journal = state.journal
    if place.gpu_milli < GPU:
        device = place.devices[0]
        free = node.shares[device] + place.gpu_milli
        if free == GPU:
            journal.drop(node.shares, device)
        else:
            journal.put(node.shares, device, free)
    else:
        journal.set(node, "held", node.held & ~mask_of(place.devices))
    if place.cpu_milli:
        journal.set(node, "cpu_used", node.cpu_used - place.cpu_milli)
    if place.memory_mib:
        journal.set(node, "memory_used", node.memory_used - place.memory_mib)


def reindex(state: CellState, node: Node) -> None:
    """Bring the pool's indices to what the node is now."""
    now = share_of(node)
    if now != node.counted:
        move(state.journal, state.pools[node.pool], node.id, node.counted, now)
        state.journal.set(node, "counted", now)


def enter_pool(state: CellState, node: Node) -> None:
    """Put a node into the indices of the pool in which it works now."""
    pool = state.pools.get(node.pool)
    if pool is None:
        pool = PoolCapacity()
        state.journal.put(state.pools, node.pool, pool)
    insert_node(state.journal, pool, node.id)
    reindex(state, node)


def leave_pool(state: CellState, node: Node) -> None:
    """Take a node out of the indices of its pool, before it changes to another."""
    pool = state.pools[node.pool]
    move(state.journal, pool, node.id, node.counted, NOTHING)
    state.journal.set(node, "counted", NOTHING)
    remove_node(state.journal, pool, node.id)
    if not pool.ids:
        state.journal.drop(state.pools, node.pool)
