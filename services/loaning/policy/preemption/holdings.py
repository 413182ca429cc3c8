"""What running gangs hold, counted by class: the first look of a search, which costs it nothing for each candidate.

A class is a tenant, a GPU type and a priority. From these sums it follows how much could become free at most, so a
search that must fail mostly ends before it has begun, and knows how many GPUs are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.shared.cluster.capacity.gpu_types import idle_milli
from fallow.shared.cluster.model.config import PreemptRule
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.claim import Claim, apart_of
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.reasons import PreemptionCause

_YIELDS_FROM = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RESIZING)

_OF_OTHERS = (PreemptionCause.QUOTA_RECLAIM, PreemptionCause.FAIR_SHARE)
"""By these causes nothing is taken from one's own tenant, nor from those below it."""


@dataclass(slots=True)
class Held:
    """What a class holds in all, and the most that one job of it does; milli-GPUs."""

    milli: int = 0
    largest_milli: int = 0

    def add(self, milli: int) -> None:
        """One job more."""
        self.milli += milli
        self.largest_milli = max(self.largest_milli, milli)


@dataclass(slots=True)
class Holdings:
    """The sums of one state. `by_class` has accounts, and by priority what preemptible gangs of theirs hold;
    `leaving_milli` what jobs hold that stop already, by GPU type; `gone` are those that yield in what follows.
    """

    by_class: dict[Account, dict[int, Held]] = field(default_factory=dict)
    leaving_milli: dict[str, int] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, state: CellState) -> Holdings:
        """Counted from all jobs."""
        found = cls()
        for job in state.jobs.values():
            if not job.workers:
                continue
            spec, (account, milli) = job.spec, _class_of(state, job)
            if job.status is JobStatus.STOPPING:
                found.leaving_milli[account[1]] = found.leaving_milli.get(account[1], 0) + milli
            elif spec.preemptible and spec.gang and job.status in _YIELDS_FROM:
                found.by_class.setdefault(account, {}).setdefault(spec.priority, Held()).add(milli)
        return found

    def go(self, state: CellState, job: Job) -> None:
        """This one yields in what follows, and holds nothing any more."""
        account, milli = _class_of(state, job)
        self.gone[job.spec.id] = None
        self.by_class[account][job.spec.priority].milli -= milli

    def missing_milli(self, state: CellState, claim: Claim, gpu_type: str) -> int:
        """How many milli-GPUs of the type are missing though all yield that may: never more than really are, and at
        most 0 where none need be. A gang of several types counts for that of its first worker.
        """
        wanted_milli = claim.milli.get(gpu_type, 0)
        room_milli = idle_milli(state, gpu_type) + self.leaving_milli.get(gpu_type, 0)
        if room_milli >= wanted_milli:
            return 0
        return wanted_milli - room_milli - self._yields_milli(state, claim, gpu_type)

    def _yields_milli(self, state: CellState, claim: Claim, gpu_type: str) -> int:
        """The most that could become free of the type by this claim."""
        return sum(
            self._of_tenant(state, claim, account, by_priority)
            for account, by_priority in self.by_class.items()
            if account[1] == gpu_type
        )

    @staticmethod
    def _of_tenant(state: CellState, claim: Claim, account: Account, by_priority: dict[int, Held]) -> int:
        able = [held for priority, held in by_priority.items() if _may(claim, priority)]
        milli, largest_milli = sum(held.milli for held in able), max((held.largest_milli for held in able), default=0)
        apart = apart_of(state.quotas, account[0], claim.preemptor.spec.tenant, account[1])
        if not apart:
            return 0 if claim.cause in _OF_OTHERS else milli
        if any(each in state.quotas and not state.quotas[each].reclaimable for each in apart):
            return 0
        branch = state.tree.branches.get(account)
        borrowed_milli = state.usage.get(account, 0) - (0 if branch is None else branch.guaranteed_milli)
        if claim.cause is PreemptionCause.QUOTA_RECLAIM and borrowed_milli > 0:
            # As long as it borrows a whole job goes, whatever that takes of the guarantee.
            borrowed_milli = (borrowed_milli - 1) // GPU * GPU + largest_milli
        return min(milli, max(0, borrowed_milli))


def _class_of(state: CellState, job: Job) -> tuple[Account, int]:
    """The account of a running job, by the type of its first worker, and what it holds."""
    gpu_type = state.nodes[job.workers[0].node].spec.gpu_type
    return (job.spec.tenant, gpu_type), job.spec.resources.gpu_milli * len(job.workers)


def _may(claim: Claim, priority: int) -> bool:
    """Whether jobs of this priority may yield, as far as that goes by their priority."""
    if claim.cause is not PreemptionCause.PRIORITY:
        return True
    own = claim.preemptor.spec.priority
    return priority < own or (priority == own and claim.queue.preempt is PreemptRule.LOWER_OR_NEWER_EQUAL)
