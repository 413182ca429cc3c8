"""The node that a worker has just come to is mostly the one for the next: then nothing is searched, and nothing is
counted anew.

A policy that packs single workers takes the node with the fewest free devices that has enough. Where one node alone has
changed since nodes were counted, and no other has as few, it is that one; whatever was passed over before.
"""

from __future__ import annotations

from fallow.services.placement.fit.device_selection import devices_for, held_by_islands
from fallow.services.placement.fit.free_capacity import more_that_suit
from fallow.services.placement.search.quota_check import refusal
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import misfit
from fallow.shared.cluster.capacity.gpu_types import gpu_types_of
from fallow.shared.cluster.capacity.taken_alone import healthy_milli
from fallow.shared.cluster.model.node import Node, is_in_zone
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, WorkerPlace


def place_on_same(state: CellState, spec: JobSpec, most: int = 1) -> list[WorkerPlace]:
    """The place of a job's only worker of whole GPUs, if it is on the one node that was changed; and those of as many
    more jobs like this one as go there too, if each was started before the next. None of them tells nothing.
    """
    wants, node = spec.resources, state.capacity.only_changed
    if node is None or spec.workers != 1 or wants.gpu_milli < GPU or spec.topology is not None or state.tree.kept.nodes:
        return []
    pool, gpus, free = state.capacity.as_counted[node.pool], wants.gpu_milli // GPU, node.free
    if not _is_tightest(pool, gpus, free.bit_count()) or not _may_have(state, pool, node, spec):
        return []
    # With several islands the node is the right one for one more only while it has a whole one.
    is_for_one = spec.exclusive or len(node.spec.islands) > 1
    here = 1 if is_for_one else more_that_suit(node, spec, 0, min(most, free.bit_count() // gpus))
    return [
        WorkerPlace(
            rank=0,
            node=node.spec.id,
            devices=devices,
            gpu_milli=wants.gpu_milli,
            cpu_milli=wants.cpu_milli,
            memory_mib=wants.memory_mib,
        )
        for devices in devices_for(free, node.spec, gpus, here)
    ]


def _is_tightest(pool: PoolCapacity, gpus: int, free: int) -> bool:
    """Whether a node with so many free devices has enough, and all others that have enough have more."""
    by_free = pool.by_free
    for count in range(gpus, free + 1):
        if count in by_free:
            return False
    return gpus <= free


def _may_have(state: CellState, pool: PoolCapacity, node: Node, spec: JobSpec) -> bool:
    """Whether the node takes the worker, and neither another pool nor another rule comes first."""
    if node.alone is not None or not node.is_schedulable or not more_that_suit(node, spec, 0, 1):
        return False
    if node.pool != (spec.pools[0] if spec.pools else min(state.capacity.as_counted)):
        return False
    is_zoned = pool.nodes_in_zone or is_in_zone(node)
    is_choosy = spec.node_labels or spec.exclusive or node.spec.taints or is_zoned or state.maintenance_starts
    if is_choosy and (node.spec.id in state.maintenance_starts or misfit(node, spec) is not None):
        return False
    if is_zoned and spec.kind is not JobKind.TRAINING:
        return False  # services may be spread there
    gpus = spec.resources.gpu_milli // GPU
    if gpus > 1 and node.spec.islands and not held_by_islands(node.free, node.spec.islands, gpus):
        return False
    return not state.quotas or _is_within_quota(state, pool, node, spec)


def _is_within_quota(state: CellState, pool: PoolCapacity, node: Node, spec: JobSpec) -> bool:
    """Whether quotas let the job have it, and keep it from no other GPU type of the pool."""
    gpu_type = node.spec.gpu_type
    if spec.gpu_type is None and list(gpu_types_of(state, pool)) != [gpu_type]:
        return False
    taken_milli = healthy_milli(node) if spec.exclusive else spec.gpus_milli
    return refusal(state, spec, gpu_type, spec.gpus_milli, taken_milli=taken_milli) is None
