"""Whether a job waits for nodes to speak: those with room take nothing while nothing is heard of them, nor before they
confirm what was started there.
"""

from __future__ import annotations

from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import misfit
from fallow.shared.cluster.capacity.hardware import hardware_of
from fallow.shared.cluster.capacity.maintenance import shut_for
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.reasons import PendingReason

OF_ROOM = (PendingReason.NO_FREE_GPUS, PendingReason.FRAGMENTED)


def with_confirmations(state: CellState, spec: JobSpec, code: PendingReason) -> PendingReason:
    """The code, or that confirmations are missing, or the words of silent nodes: their free devices would make up for
    what the others do not have, in one of its pools, on nodes that it may use. CPUs and memory are not looked at.
    """
    full = [] if state.unacknowledged is None else list(state.unacknowledged.full.values())
    if not (full or state.silent) or code not in OF_ROOM:
        return code
    silent = [state.nodes[node_id] for node_id in state.silent if not state.nodes[node_id].is_full]
    pools = state.pools
    for name in spec.pools or sorted(pools):
        if name not in pools:
            continue
        full_here = [node for node in full if node.pool == name]
        if full_here and _would_do(state, pools[name], full_here, spec):
            return PendingReason.UNACKNOWLEDGED
        silent_here = [node for node in silent if node.pool == name]
        if silent_here and _would_do(state, pools[name], full_here + silent_here, spec):
            return PendingReason.NODES_SILENT
    return code


def _would_do(state: CellState, pool: PoolCapacity, full: list[Node], spec: JobSpec) -> bool:
    room, shut = _room_of(state, pool, spec), shut_for(state, pool, spec) if state.maintenance_starts else ()
    missing = spec.workers - _room(room.by_free, room.by_share, spec)
    pool.effort.looks += len(full)
    for node in full:
        if not node.is_in_service or spec.gpu_type not in (None, node.spec.gpu_type):
            continue
        if misfit(node, spec) is not None or node.spec.id in shut:
            continue
        shares = {free: 1 for device, free in node.shares.items() if not node.closed >> device & 1}
        missing -= _room({node.gpus_free: 1}, shares, spec)
        if missing <= 0:
            return True
    return False


def _room_of(state: CellState, pool: PoolCapacity, spec: JobSpec) -> FreeCapacity:
    """What is free on the nodes that the job may use and that take new work."""
    if spec.gpu_type is None:
        return FreeCapacity.of(state, pool, spec)
    kinds = hardware_of(state, pool).kinds
    return FreeCapacity.of(
        state, pool, spec, sum(mask for kind, mask in kinds.items() if kind.gpu_type == spec.gpu_type)
    )


def _room(by_free: dict[int, int], by_share: dict[int, int], spec: JobSpec) -> int:
    """How many workers these masks of nodes hold, by the devices that are free on each."""
    each = spec.resources.gpu_milli
    if each >= GPU:
        return sum(free // (each // GPU) * mask.bit_count() for free, mask in by_free.items())
    if not each:
        return sum(mask.bit_count() for mask in by_free.values())
    whole = sum(free * (GPU // each) * mask.bit_count() for free, mask in by_free.items())
    return whole + sum(share // each * mask.bit_count() for share, mask in by_share.items())
