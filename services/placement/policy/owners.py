"""Owners that wait for what is guaranteed to them, and might not get it back from everybody who borrows it: for these
it is kept. Whoever may always take back what he lent needs no such care.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.cluster.gpu_types import gpu_types_of
from shared.cluster.job import JobStatus
from shared.cluster.quota import over_limit
from shared.cluster.quota_room import lineage
from shared.cluster.quota_tree import Account
from shared.cluster.state import CellState
from shared.events.operations import ReclaimFrom
from shared.events.queue import QueueHead
from shared.events.values import JobSpec

Waiting = dict[Account, tuple[tuple[int, int], ...]]
"""What the waiting jobs of an account need, as (priority, milli-GPUs): the most of each priority."""


def has_keepers(state: CellState) -> bool:
    """Whether anybody may not take back from everybody what he lent."""
    return bool(state.quotas) and any(cohort.keepers for cohort in state.tree.cohorts.values())


def owners_waiting(state: CellState, heads: Iterable[QueueHead], now_ms: int) -> Waiting:
    """The needs of keepers whose jobs could start now if there was room, as far as they stand in these heads.

    Of jobs of one priority only the largest counts, so a window that leaves out jobs of a class tells the same.
    """
    most: dict[Account, dict[int, int]] = {}
    for head in heads:
        for job_id in head.jobs:
            job = state.jobs.get(job_id)
            if job is None or job.status is not JobStatus.QUEUED or job.not_before_ms > now_ms:
                continue
            for account in _keepers_above(state, job.spec):
                of_priority = most.setdefault(account, {})
                need_milli = max(job.spec.gpus_milli, of_priority.get(job.spec.priority, 0))
                of_priority[job.spec.priority] = need_milli
    return {account: tuple(sorted(most[account].items())) for account in sorted(most)}


def _keepers_above(state: CellState, spec: JobSpec) -> list[Account]:
    """The accounts that keep what is theirs for this job: not for one that is at a limit."""
    tree, found = state.tree, list[Account]()
    for gpu_type in _types(state, spec):
        branch = tree.branches.get((spec.tenant, gpu_type))
        if branch is None or over_limit(tree, spec.tenant, gpu_type, spec.gpus_milli) is not None:
            continue
        found += [
            above.account
            for above in lineage(branch)
            if above.quota.reclaim is not ReclaimFrom.ANY and above.guaranteed_milli
        ]
    return found


def _types(state: CellState, spec: JobSpec) -> dict[str, None]:
    if spec.gpu_type is not None:
        return {spec.gpu_type: None}
    pools = state.pools
    here = [pools[name] for name in spec.pools or sorted(pools) if name in pools]
    return {gpu_type: None for pool in here for gpu_type in gpu_types_of(state, pool)}
