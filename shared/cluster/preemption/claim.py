"""What a waiting job claims by preemption, and what running jobs hold, account by account."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.reasons import PreemptionCause


class Claim(NamedTuple):
    """A waiting job that asks others to yield for this cause, so that it holds so much of each GPU type (`milli`, in
    milli-GPUs) at `now_ms` of cell time. `queue` is the one in which it waits.
    """

    preemptor: Job
    queue: Queue
    cause: PreemptionCause
    milli: Mapping[str, int]
    now_ms: int


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


def apart_of(quotas: Quotas, tenant: str, other: str, gpu_type: str) -> list[Account]:
    """The accounts of a tenant and of those above it, from the leaf up, that do not stand above the other tenant, too:
    none where the two are one tenant, or the other one stands below it.
    """
    above = dict.fromkeys(accounts(quotas, other, gpu_type))
    return [account for account in accounts(quotas, tenant, gpu_type) if account not in above]
