"""Places that were planned for a job: whether it may start in them as the state is now."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.placement.search.quota_check import refusal_of_places
from fallow.shared.cluster.capacity.constraints import misfit
from fallow.shared.cluster.capacity.maintenance import shut_for
from fallow.shared.cluster.model.node import Node, mask_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, LoanStatus, NodeStatus, WorkerPlace


def may_start_in(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> bool:
    """Whether all of these places are free, on nodes that take the job, within the quotas of its tenant."""
    return are_free_for(state, spec, places) and (not state.quotas or refusal_of_places(state, spec, places) is None)


def are_free_for(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace]) -> bool:
    """Whether all of these places are free, on nodes that take the job, whatever the quotas say."""
    on_node: dict[str, list[WorkerPlace]] = {}
    for place in places:
        on_node.setdefault(place.node, []).append(place)
    for node_id, theirs in on_node.items():
        node = state.nodes.get(node_id)
        if node is None or not node.is_schedulable or misfit(node, spec) is not None or not _is_free(node, theirs):
            return False
    if not are_places_of(state, spec, places, state.at_ms):  # the job may have been changed since
        return False
    return not (state.maintenance_starts and any(_is_shut(state, spec, node_id) for node_id in on_node))


def are_places_of(state: CellState, spec: JobSpec, places: Sequence[WorkerPlace], start_ms: int) -> bool:
    """Whether these are places for all workers of this job as it is now, on nodes of one of its pools that could be
    what it asks for when it is planned to start: whatever runs there.
    """
    wants, nodes = spec.resources, [state.nodes.get(place.node) for place in places]
    if [place.rank for place in places] != list(range(spec.workers)):
        return False
    if len({None if node is None else node.pool for node in nodes}) != 1:
        return False
    taken: dict[str, int] = {}
    for place, node in zip(places, nodes, strict=True):
        if node is None or not _suits(node, spec, start_ms):
            return False
        if (place.gpu_milli, place.cpu_milli, place.memory_mib) != (
            wants.gpu_milli, wants.cpu_milli, wants.memory_mib,
        ):  # fmt: skip
            return False
        mask = mask_of(place.devices)
        if mask.bit_count() != -(-wants.gpu_milli // GPU) or mask >> node.spec.gpus or mask & node.failed:
            return False
        if wants.gpu_milli >= GPU and taken.get(place.node, 0) & mask:
            return False
        taken[place.node] = taken.get(place.node, 0) | mask
    return True


def is_in_service_by(node: Node, start_ms: int) -> bool:
    """Whether the node takes work, or will when its maintenance is over, which it is by then as planned."""
    window = node.maintenance_ms
    is_back = node.is_out_for_maintenance and window is not None and window[1] <= start_ms
    if is_back and node.status is NodeStatus.DRAINING:
        return node.wanted is NodeStatus.READY and node.loan_status is not LoanStatus.DRAINING
    return node.is_in_service


def _suits(node: Node, spec: JobSpec, start_ms: int) -> bool:
    """Whether the node is of the job's kind, and in service when the job is planned to start."""
    if spec.pools and node.pool not in spec.pools:
        return False
    if spec.gpu_type not in (None, node.spec.gpu_type) or node.offered is not None:
        return False
    return is_in_service_by(node, start_ms) and not node.silent_wall_ms


def _is_free(node: Node, places: Sequence[WorkerPlace]) -> bool:
    cpu_milli = sum(place.cpu_milli for place in places)
    memory_mib = sum(place.memory_mib for place in places)
    if cpu_milli > node.cpu_free or memory_mib > node.memory_free:
        return False
    by_share: dict[int, int] = {}
    for place in places:
        if node.refusal(place, mask_of(place.devices)) is not None:
            return False
        if 0 < place.gpu_milli < GPU:
            device = place.devices[0]
            by_share[device] = by_share.get(device, 0) + place.gpu_milli
    return all(milli <= node.shares.get(device, GPU) for device, milli in by_share.items())


def _is_shut(state: CellState, spec: JobSpec, node_id: str) -> bool:
    return node_id in state.maintenance_starts and node_id in shut_for(
        state, state.pools[state.nodes[node_id].pool], spec
    )
