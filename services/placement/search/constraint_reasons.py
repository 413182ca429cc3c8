"""The reason for a job by the nodes of a pool that are left to it: what it is, and what it asks for, keep it from the
others.
"""

from __future__ import annotations

from fallow.services.placement.fit.empty_capacity import could_hold, could_hold_later
from fallow.services.placement.search.reason_precedence import is_of_quota
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.node_filter_index import marks_of, needs_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.reasons import PendingReason


def narrowed(state: CellState, pool: PoolCapacity, spec: JobSpec, found: PendingReason) -> PendingReason:
    """What keeps the job from this pool, where `found` is what the whole pool would say. What its nodes could not hold
    even empty waits for other nodes, whatever else would keep it.
    """
    needs = needs_of(state, pool, spec)
    if not could_hold(state, pool, spec):
        if needs is None or not needs.shut or not could_hold_later(state, pool, spec):
            return PendingReason.NO_SUCH_NODES
        return found if is_of_quota(found) else PendingReason.MAINTENANCE
    if needs is None or found is not PendingReason.FRAGMENTED or spec.resources.gpu_milli < GPU:
        return found
    among = marks_of(state, pool).members(state, needs)
    free = sum(devices * (mask & among).bit_count() for devices, mask in pool.by_free.items())
    return PendingReason.NO_FREE_GPUS if free * GPU < spec.gpus_milli else found
