"""Which of a tenant's running jobs count as borrowed: those that go first when what was lent is wanted back."""

from __future__ import annotations

from typing import NamedTuple

from fallow.shared.cluster.model.job import HOLDING, Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.tree import Account


class Borrowed(NamedTuple):
    """So much of a job's use is borrowed. `is_flexible`: these are workers that it can do without."""

    job: str
    milli: int
    is_flexible: bool


def borrowed_milli(state: CellState, account: Account) -> int:
    """How much more the account uses, with all below it, than is guaranteed to it."""
    branch = state.tree.branches.get(account)
    guaranteed = 0 if branch is None else branch.guaranteed_milli
    return max(0, state.usage.get(account, 0) - guaranteed)


def borrowed_jobs(state: CellState, account: Account) -> list[Borrowed]:
    """The jobs, or parts of them, that make up what the account borrows; together exactly so much. First the workers
    that jobs can do without, then whole jobs; among these the lowest priority, then who started last. Jobs that may not
    be preempted come last: they were started within the guarantee.
    """
    left_milli, found = borrowed_milli(state, account), list[Borrowed]()
    held = [(job, milli) for job in state.jobs.values() if (milli := _held(state, job, account))]
    held.sort(key=lambda each: _order(each[0]))
    for is_flexible in (True, False):
        for job, milli in held:
            flexible = _flexible(job, milli)
            part = min(left_milli, flexible if is_flexible else milli - flexible)
            if part:
                found.append(Borrowed(job.id, part, is_flexible))
                left_milli -= part
    return found


def _held(state: CellState, job: Job, account: Account) -> int:
    """What the job uses of the account."""
    if job.status not in HOLDING or account not in accounts(state.quotas, job.spec.tenant, account[1]):
        return 0
    places = job.workers + job.joining
    return sum(place.gpu_milli for place in places if state.nodes[place.node].spec.gpu_type == account[1])


def _flexible(job: Job, milli: int) -> int:
    """How much of this is held by workers above the job's fewest."""
    fewest = job.spec.workers_min
    if fewest is None or not job.spec.preemptible:
        return 0
    surplus = max(0, len(job.workers) + len(job.joining) - fewest)
    return min(milli, surplus * job.spec.resources.gpu_milli)


def _order(job: Job) -> tuple[bool, int, int, str]:
    started_ms = -1 if job.started_ms is None else job.started_ms
    return (not job.spec.preemptible, job.spec.priority, -started_ms, job.id)
