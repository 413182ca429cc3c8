"""In which order jobs yield: who costs least goes first.

Borrowers go before owners, then lower priorities before higher ones, then those that lose least work, then those that
started last. Kant (3.2.2) names no order; this one is that of Kueue (`preemption.go`, candidates) with the work lost in
it, for which none of the peers looks.
"""

from __future__ import annotations

from collections.abc import Iterable

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, apart_of, held_by

Cost = tuple[bool, int, int, int, int, int, str]
"""What it costs that a job yields: the lowest goes first. Equal for no two jobs."""


def cost_key(state: CellState, claim: Claim, victim: Job) -> Cost:
    """What it costs that this job yields to the one that waits. Of equals the one goes that came last: by its
    submission, then by its number, which elements of arrays have in the order of their indices.
    """
    started_ms = -1 if victim.started_ms is None else victim.started_ms
    return (
        is_owners(state, claim, victim),
        victim.spec.priority,
        work_lost_ms(victim, claim.now_ms),
        -started_ms,
        -victim.submit_ms,
        -victim.number,
        victim.id,
    )


def in_order_of_cost(state: CellState, claim: Claim, victims: Iterable[Job]) -> list[Job]:
    """These jobs, the cheapest first."""
    return sorted(victims, key=lambda victim: cost_key(state, claim, victim))


def is_owners(state: CellState, claim: Claim, victim: Job) -> bool:
    """Whether the victim stands within a guarantee: without it its tenant, or one above it that does not stand above
    the preemptor's too, would use less than what is guaranteed to it.
    """
    branches = state.tree.branches
    for gpu_type, milli in held_by(state, victim).items():
        for account in apart_of(state.quotas, victim.spec.tenant, claim.preemptor.spec.tenant, gpu_type):
            branch = branches.get(account)
            if branch is not None and branch.used_milli - milli < branch.guaranteed_milli:
                return True
    return False


def work_lost_ms(job: Job, now_ms: int) -> int:
    """How long each worker of the job has run since its last checkpoint, as far as the job tells how often it writes
    one.

    One that tells nothing loses nothing by this count, so that it goes first: who tells the truth is never taken before
    one who does not.
    """
    every_ms = job.spec.checkpoint_interval_ms
    if not every_ms or job.running_ms is None:
        return 0
    return max(0, now_ms - job.running_ms) % every_ms
