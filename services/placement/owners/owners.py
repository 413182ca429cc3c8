"""Owners: tenants with a waiting job while GPUs of their guarantee are idle. Places are kept for such jobs: what an
owner lends now is away until the borrower is over, unless it can be taken back (`lending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fallow.services.placement.owners.claims import Wanted, claims_of, waiter
from fallow.services.placement.owners.kept_in_order import KeptInOrder
from fallow.services.placement.owners.kept_index import carry_over
from fallow.services.placement.owners.waiting_owners import WaitingOwners
from fallow.services.placement.policy.frag_aware.changed_nodes import changed_nodes, forget_changes
from fallow.services.placement.queue.lines.lines import Lines
from fallow.shared.cluster.model.independent_workers import grows
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT, KeptPlaces
from fallow.shared.cluster.quota.room import lineage
from fallow.shared.events.reasons import PendingReason


class Owners:
    """The owners of one cell whose jobs could start now if there was room.

    What is kept for them stands in the state's tree, where who looks for room finds it; it follows from the lines, not
    from the log. What it costs to note it goes by what has changed since: classes of jobs, use of tenants, and nodes.
    """

    def __init__(self) -> None:
        self._waiting, self._kept = WaitingOwners(), KeptInOrder()

    def forget(self, state: CellState) -> None:
        """The state is another one."""
        self._waiting.forget()
        self._kept.forget()
        state.tree.kept = NOTHING_KEPT

    @property
    def next_cell_ms(self) -> int | None:
        """When other places may be kept though nothing happens; None while none may."""
        return self._kept.next_cell_ms

    def are_due(self, now_ms: int) -> bool:
        """Whether such a moment has come since they were noted."""
        return self._kept.next_cell_ms is not None and self._kept.next_cell_ms <= now_ms

    def note(self, state: CellState, lines: Lines) -> bool:
        """Look who waits now. Whether other places are kept than before: then others may borrow, and are tried
        again.
        """
        before = state.tree.kept
        if not has_owners(state):
            lines.touched.take()
            if before.all or self._kept.next_cell_ms is not None:
                self.forget(state)
            return bool(before.all)
        change = self._waiting.look(state, lines)
        if change.is_all:
            self._kept.forget()
        other = self._kept.change(state, change.gone, change.new, changed_nodes(state))
        forget_changes(state)
        if not (change.is_all or other.gone or other.new):
            return False
        state.tree.kept = KeptPlaces.of(self._kept.all)
        if not change.is_all:
            carry_over(state, before, other.gone, other.new)
        return state.tree.kept != before

    def note_all(self, state: CellState) -> None:
        """Note the owners among all jobs of the state, for a caller without lines."""
        now_ms = max(state.at_ms, state.clock_ms)
        waiting = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED or grows(job, now_ms)]
        idle = _with_idle(state, dict.fromkeys(job.spec.tenant for job in waiting))
        jobs = [job for job in waiting if job.spec.tenant in idle and job.deferred is not PendingReason.BEHIND_HEAD]
        state.tree.kept = kept_for(state, jobs)


def kept_for(state: CellState, jobs: Sequence[Job]) -> KeptPlaces:
    """The places that are kept for these jobs."""
    waiters = sorted([waiter(state, job, Wanted(state, job)) for job in jobs], key=lambda each: each.place)
    kept = KeptInOrder()
    kept.change(state, [], claims_of(state, waiters, [each.wanted.form for each in waiters]), {})
    return KeptPlaces.of(kept.all)


def has_owners(state: CellState) -> bool:
    """Whether anything is guaranteed to any tenant."""
    return bool(state.quotas) and any(cohort.has_guarantees for cohort in state.tree.cohorts.values())


def _with_idle(state: CellState, tenants: Iterable[str]) -> dict[str, None]:
    """Those of the tenants that have an idle guarantee, or stand below a tenant that has one."""
    tree, found = state.tree, dict[str, None]()
    if not has_owners(state):
        return found
    types = [gpu_type for gpu_type, cohort in tree.cohorts.items() if cohort.has_guarantees]
    for tenant in tenants:
        branches = [tree.branches.get((tenant, gpu_type)) for gpu_type in types]
        if any(above.idle_milli for branch in branches for above in lineage(branch)):
            found[tenant] = None
    return found
