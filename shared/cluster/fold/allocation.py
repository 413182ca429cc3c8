"""Taking places and giving them back: the only code that changes what is free."""

from __future__ import annotations

from typing import Any

from fallow.shared.cluster.fold.undo_log import Entry
from fallow.shared.cluster.model.node import Node, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import charge, over_limit
from fallow.shared.events.fields.values import GPU, WorkerPlace


def take(  # noqa: C901, PLR0912 - a call for each part would cost more than the part
    state: CellState, tenant: str, job_id: str, places: tuple[WorkerPlace, ...]
) -> str | None:
    """Hold these places for a job and charge its tenant. The reason if one cannot be had, or a limit would be passed;
    then some may be held already, so the caller rolls back.
    """
    nodes, undo, noted = state.nodes, state.undo_log.entries, state.capacity.noted
    gpu_type, milli, workers, node = "", 0, 0, None
    for place in places:
        if node is None or place.node != node.spec.id:  # it is noted once for all workers that come to it together
            node = nodes.get(place.node)
            if node is None:
                return f"node {place.node} does not exist"
            if gpu_type != node.spec.gpu_type:
                if milli and (refusal := _charge(state, tenant, gpu_type, milli)) is not None:
                    return refusal
                gpu_type, milli = node.spec.gpu_type, 0
            workers = node.jobs.get(job_id, 0)
            undo.append((_hold_again, node, noted, (node.held, node.cpu_used, node.memory_used, job_id, workers)))
            noted[place.node] = node
        wanted, gpu_milli = mask_of(place.devices), place.gpu_milli
        refusal = node.refusal(place, wanted)
        if refusal is not None:
            return f"node {place.node}: {refusal}"
        milli += gpu_milli
        workers += 1
        node.jobs[job_id] = workers
        if gpu_milli >= GPU:
            node.held |= wanted
        elif gpu_milli:
            _share(undo, node, place.devices[0], -gpu_milli)
        if place.cpu_milli:
            node.cpu_used += place.cpu_milli
        if place.memory_mib:
            node.memory_used += place.memory_mib
    if state.jobs[job_id].spec.exclusive:
        _hold_alone(state, job_id, places)
    if not milli:
        return None
    if state.quotas:
        return _charge(state, tenant, gpu_type, milli)
    charge(undo, state.tree, (tenant, gpu_type), milli)
    return None


def _charge(state: CellState, tenant: str, gpu_type: str, milli: int) -> str | None:
    """Charge the tenant; the reason if that would pass a limit."""
    account = over_limit(state.tree, tenant, gpu_type, milli)
    if account is not None:
        return f"{milli} milli-GPUs more would pass the limit of {account}"
    charge(state.undo_log.entries, state.tree, (tenant, gpu_type), milli)
    return None


def release(state: CellState, tenant: str, job_id: str, places: tuple[WorkerPlace, ...]) -> None:
    """Give these places back. A device that failed meanwhile stays out of use."""
    nodes, undo, noted = state.nodes, state.undo_log.entries, state.capacity.noted
    gpu_type, milli = "", 0
    for place in places:
        node = nodes[place.node]
        if gpu_type != node.spec.gpu_type:
            if milli:
                charge(undo, state.tree, (tenant, gpu_type), milli)
            gpu_type, milli = node.spec.gpu_type, 0
        milli -= place.gpu_milli
        workers = node.jobs[job_id]
        undo.append((_hold_again, node, noted, (node.held, node.cpu_used, node.memory_used, job_id, workers)))
        noted[place.node] = node
        if workers > 1:
            node.jobs[job_id] = workers - 1
        else:
            del node.jobs[job_id]
            if node.alone is not None:
                undo.append((setattr, node, "alone", node.alone))
                node.alone = None
        if place.gpu_milli < GPU:
            if place.gpu_milli:
                _share(undo, node, place.devices[0], place.gpu_milli)
        else:
            node.held &= ~mask_of(place.devices)
        if place.cpu_milli:
            node.cpu_used -= place.cpu_milli
        if place.memory_mib:
            node.memory_used -= place.memory_mib
    if milli:
        charge(undo, state.tree, (tenant, gpu_type), milli)


def _hold_alone(state: CellState, job_id: str, places: tuple[WorkerPlace, ...]) -> None:
    """Keep all other jobs off the nodes of these places, which are taken, until the job has left them."""
    for place in places:
        node = state.nodes[place.node]
        if node.alone is None:
            state.undo_log.set(node, "alone", job_id)


def _share(undo: list[Entry], node: Node, device: int, more_milli: int) -> None:
    """So much more is free on a shared device. One that is wholly free is not shared."""
    free = node.shares.get(device, GPU)
    undo.append((_share_again, node.shares, device, free))
    _share_again(node.shares, device, free + more_milli)


def _share_again(shares: dict[int, int], device: int, free: int) -> None:
    if free == GPU:
        shares.pop(device, None)
    else:
        shares[device] = free


def _hold_again(node: Node, noted: dict[str, Node], old: tuple[int, int, int, str, int]) -> None:
    """Put back what a node held."""
    node.held, node.cpu_used, node.memory_used, job_id, workers = old
    noted[node.spec.id] = node
    if workers:
        node.jobs[job_id] = workers
    else:
        node.jobs.pop(job_id, None)  # it may have been refused the first of its places there


def change_node(state: CellState, node: Node, **values: Any) -> None:
    """Change these attributes of a node, and have it counted anew at the next question for what is free."""
    undo, noted = state.undo_log.entries, state.capacity.noted
    for name, value in values.items():
        undo.append((setattr, node, name, getattr(node, name)))
        setattr(node, name, value)
    undo.append((dict.__setitem__, noted, node.id, node))
    noted[node.id] = node


def enter_pool(state: CellState, node: Node) -> None:
    """Put a node into the indices of the pool in which it works now."""
    state.undo_log.entries.append((_void, state, None, None))
    state.capacity.enter(node)


def leave_pool(state: CellState, node: Node) -> None:
    """Take a node out of the indices of its pool, before it changes to another."""
    state.undo_log.entries.append((_void, state, None, None))
    state.capacity.leave(node)


def _void(state: CellState, _: None, __: None) -> None:
    state.capacity.void()
