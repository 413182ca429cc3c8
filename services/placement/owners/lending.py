"""What is lent although its owner waits for it: what the owner can take back.

Where preemption is on, an owner whose quota says `reclaim: any` stops those who borrow from it as soon as that lets its
job start. Until then the room is of no use to that job, so those may have it who give it back. It is kept from all
others: from jobs that nothing stops, and wherever the owner's job is one to which no job yields.
"""

from __future__ import annotations

from fallow.services.placement.fit.usable_types import types_for
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import lineage
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import PreemptionMode, ReclaimFrom


def is_taken_back_for(state: CellState, job: Job, spec: JobSpec, gpu_type: str) -> bool:
    """Whether room of this type that is lent can be taken back for the waiting job, which stands in line as `spec`.

    That goes by each guarantee above it: it would hold the whole job, so that no run but its tenant's own keeps the job
    from taking it back, and is taken back from all who borrow. To a job that has run before some may have yielded
    already, and these do not do so again.
    """
    if state.policy.preemption is PreemptionMode.OFF or not spec.gang or spec.exclusive or job.attempt:
        return False
    owners = [each for each in lineage(state.tree.branches.get((spec.tenant, gpu_type))) if each.guaranteed_milli]
    return all(each.quota.reclaim is ReclaimFrom.ANY and spec.gpus_milli <= each.guaranteed_milli for each in owners)


def is_given_back(state: CellState, spec: JobSpec) -> bool:
    """Whether a job that borrows yields when its owners want that back, whatever GPU type it gets."""
    if state.policy.preemption is PreemptionMode.OFF or not (spec.gang and spec.preemptible):
        return False
    branches = [state.tree.branches.get((spec.tenant, gpu_type)) for gpu_type in types_for(state, spec)]
    return all(above.quota.reclaimable for branch in branches for above in lineage(branch))
