"""What exclusive jobs take beside their workers: no other job may come to their nodes, so the GPUs that are idle there
are as good as in use by their tenants. Kept by delta, and asked for only where quotas keep something idle.

Use itself counts what jobs have asked for: limits, shares and figures go by that. Where it matters what is left for
others, all of such nodes counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.fold.undo_log import Entry
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import charge
from fallow.shared.cluster.quota.tree import Account, Cohort
from fallow.shared.events.fields.values import GPU

TAKEN_ALONE = "taken alone"
"""The name of this view of a pool."""


class TakenAlone:
    """The milli-GPUs of healthy devices beside the workers of exclusive jobs on these nodes, by account."""

    __slots__ = ("_jobs", "_of", "by_account", "is_stale")

    def __init__(self, jobs: dict[str, Job], nodes: Iterable[Node]) -> None:
        self.is_stale, self._jobs = False, jobs
        self.by_account: dict[Account, int] = {}
        self._of: dict[str, tuple[Account, int]] = {}
        for node in nodes:
            self.note(node, 0)

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        if node.alone is None and not self._of:
            return  # nearly always
        before = self._of.pop(node.spec.id, None)
        if before is not None:
            self._count(before[0], -before[1])
        beside_milli = 0 if node.alone is None else node.idle_milli
        if node.alone is not None and beside_milli > 0:
            account = (self._jobs[node.alone].spec.tenant, node.spec.gpu_type)
            self._of[node.spec.id] = (account, beside_milli)
            self._count(account, beside_milli)

    def _count(self, account: Account, more_milli: int) -> None:
        milli = self.by_account.get(account, 0) + more_milli
        if milli:
            self.by_account[account] = milli
        else:
            del self.by_account[account]


def healthy_milli(node: Node) -> int:
    """The milli-GPUs of its healthy devices, in use or not."""
    return (node.all_devices & ~node.failed).bit_count() * GPU


def taken_alone(state: CellState) -> dict[Account, int]:
    """What exclusive jobs take beside their workers now, by account."""
    found: dict[Account, int] = {}
    for pool in state.pools.values():
        for account, milli in _in_pool(state, pool).by_account.items():
            found[account] = found.get(account, 0) + milli
    return found


def _in_pool(state: CellState, pool: PoolCapacity) -> TakenAlone:
    found = pool.views.get(TAKEN_ALONE)
    if not isinstance(found, TakenAlone):
        nodes = (state.nodes[node_id] for node_id in pool.ids)
        found = pool.views[TAKEN_ALONE] = TakenAlone(state.jobs, nodes)
    return found


@contextmanager
def with_whole_nodes(state: CellState, gpu_type: str | None = None) -> Iterator[None]:
    """While this lasts exclusive jobs count with all healthy GPUs of their nodes in the tree of quotas, those of this
    type or of all. It is the same afterwards, and costs as much as one start for each tenant with such jobs.
    """
    tree, undo, new = state.tree, list[Entry](), list[tuple[Cohort, Account]]()
    for account, milli in taken_alone(state).items():
        if gpu_type not in (None, account[1]):
            continue
        branch = tree.branches.get(account) if tree.quotas else None
        if branch is not None and account not in branch.cohort.touched:
            new.append((branch.cohort, account))
        charge(undo, tree, account, milli)
    try:
        yield
    finally:
        for restore, owner, place, old in reversed(undo):
            restore(owner, place, old)
        for cohort, account in new:
            del cohort.touched[account]
