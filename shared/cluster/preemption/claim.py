"""What a waiting job claims by preemption, and what running jobs hold, account by account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.reasons import PreemptionCause


class Claim(NamedTuple):
    """A waiting job that asks others to yield for this cause, so that it holds so much of each GPU type (`milli`, in
    milli-GPUs) at `now_ms` of cell time. `queue` is the one in which it waits. `leaving` is what jobs that stop already
    still use of each account (`leaving_milli`): no tenant keeps that, whatever this job takes.
    """

    preemptor: Job
    queue: Queue
    cause: PreemptionCause
    milli: Mapping[str, int]
    now_ms: int
    leaving: Mapping[Account, int] = MappingProxyType({})

    def used_milli(self, state: CellState, account: Account) -> int:
        """What the account uses without the jobs that stop already."""
        return state.usage.get(account, 0) - self.leaving.get(account, 0)


def milli_by_type(state: CellState, places: Iterable[WorkerPlace]) -> dict[str, int]:
    """What these places hold of each GPU type, in milli-GPUs. All of their nodes are known."""
    found: dict[str, int] = {}
    for place in places:
        gpu_type = state.nodes[place.node].spec.gpu_type
        found[gpu_type] = found.get(gpu_type, 0) + place.gpu_milli
    return found


def held_by(state: CellState, job: Job) -> dict[str, int]:
    """The same of what a job holds."""
    return milli_by_type(state, job.workers + job.joining)


def leaving_milli(state: CellState) -> dict[Account, int]:
    """What the jobs that stop already use of each account, in milli-GPUs."""
    found: dict[Account, int] = {}
    for job in state.jobs.values():
        if job.status is JobStatus.STOPPING:
            for gpu_type, milli in held_by(state, job).items():
                for account in accounts(state.quotas, job.spec.tenant, gpu_type):
                    found[account] = found.get(account, 0) + milli
    return found


def apart_of(quotas: Quotas, tenant: str, other: str, gpu_type: str) -> list[Account]:
    """The accounts of a tenant and of those above it, from the leaf up, that do not stand above the other tenant, too:
    none where the two are one tenant, or the other one stands below it.
    """
    above = dict.fromkeys(accounts(quotas, other, gpu_type))
    return [account for account in accounts(quotas, tenant, gpu_type) if account not in above]
