"""The reason for a job that its labels and taints keep from most of a pool: by the nodes that are left to it."""

from __future__ import annotations

from shared.cluster.capacity import PoolCapacity
from shared.cluster.marks import Marks, marks_of, needs_of
from shared.cluster.state import CellState
from shared.events.reasons import DeferCode
from shared.events.values import GPU, JobSpec


def _fit(marks: Marks, among: int, spec: JobSpec) -> bool:
    """Whether these nodes would hold the job if they were empty."""
    return marks.workers_at_most(among, spec.resources.gpu_milli) >= spec.workers


def narrowed(state: CellState, pool: PoolCapacity, spec: JobSpec, found: DeferCode) -> DeferCode:
    """What keeps the job from this pool, where `found` is what the whole pool would say."""
    needs = needs_of(state, pool, spec)
    if needs is None:
        return found
    marks = marks_of(state, pool)
    among = marks.members(state, needs)
    if needs.shut and found is not DeferCode.QUOTA_REACHED:
        ever = marks.members(state, needs._replace(shut=()))
        if _fit(marks, ever, spec) and not _fit(marks, among, spec):
            return DeferCode.MAINTENANCE
    if marks.workers_at_most(among, spec.resources.gpu_milli) < spec.workers:
        return DeferCode.NO_SUCH_NODES
    free = sum(devices * (mask & among).bit_count() for devices, mask in pool.by_free.items())
    if found is DeferCode.FRAGMENTED and spec.resources.gpu_milli >= GPU and free * GPU < spec.gpus_milli:
        return DeferCode.NO_FREE_GPUS
    return found
