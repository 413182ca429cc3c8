"""The tree of tenants of each GPU type, as quotas are lent and borrowed in it.

The arithmetic is that of Kueue's cohorts (`resource_node.go`): what a tenant does not lend stays at home and is used
first, only what exceeds it is drawn from what the tenants of one parent have together, and so on up. Tenants without a
parent share the cell.

A tree follows from quotas and use. It is made at the first question after a quota has changed, and kept by delta
from then on, so that a start costs as much as its tenant stands deep, and a cell without quotas pays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT
from fallow.shared.cluster.quota.quota_index import QuotaIndex
from fallow.shared.events.operations import Quota

Account = tuple[str, str]
"""(tenant, GPU type)."""

Quotas = dict[Account, Quota]
Usage = dict[Account, int]


@dataclass(slots=True, eq=False)
class Cohort:
    """All tenants of one GPU type. `home_idle_milli` is what they leave idle of what they do not lend,
    `guaranteed_idle_milli` of what is guaranteed to them; `has_guarantees` tells whether anything is. `touched` are the
    accounts whose own use may have changed since a caller took them out.
    """

    home_idle_milli: int = 0
    guaranteed_idle_milli: int = 0
    has_guarantees: bool = False
    touched: dict[Account, None] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[int, int]:
        """What changes with use."""
        return (self.home_idle_milli, self.guaranteed_idle_milli)


@dataclass(slots=True, eq=False)
class Branch:
    """A tenant in the tree of one GPU type, with all below it; milli-GPUs.

    `guaranteed_milli` is never less than what is guaranteed below. `home_milli` of it is lent to no tenant above, and
    `own_milli` is what the branch can use before it borrows, without what stays at home further below;
    `guaranteed_below_milli` is what is guaranteed to its children.
    `used_milli` is all use; `drawn_milli` without what is served at home further below; `drawn_max_milli` is how much
    that may be with all that it may borrow (None: as much as those above it have). `idle_below_milli` is what its
    children leave idle of their guarantees.
    """

    account: Account
    quota: Quota
    cohort: Cohort
    parent: Branch | None = None
    guaranteed_milli: int = 0
    guaranteed_below_milli: int = 0
    home_milli: int = 0
    own_milli: int = 0
    used_milli: int = 0
    drawn_milli: int = 0
    idle_below_milli: int = 0
    home_below_milli: int = 0
    served_below_milli: int = 0
    drawn_max_milli: int | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """What changes with use: used, drawn, and idle below."""
        return (self.used_milli, self.drawn_milli, self.idle_below_milli)

    @property
    def idle_milli(self) -> int:
        """What it leaves idle of its guarantee."""
        return max(0, self.guaranteed_milli - self.used_milli)

    @property
    def home_idle_milli(self) -> int:
        """What it leaves idle of what it does not lend."""
        return max(0, self.home_milli - self.drawn_milli)

    def passed_on(self, more_milli: int) -> int:
        """How much of `more_milli` at this branch is drawn from above it, because it does not stay at home."""
        before = self.drawn_milli - self.home_milli
        return max(0, before + more_milli) - max(0, before)


class QuotaTree:
    """The trees of all GPU types over the quotas and the use of a state, which are the same tables for good."""

    __slots__ = ("_at_rest", "_branches", "_cohorts", "_index", "_is_void", "kept", "quotas", "usage")

    def __init__(self, quotas: Quotas, usage: Usage) -> None:
        self.quotas, self.usage = quotas, usage
        self.kept = NOTHING_KEPT
        """What is kept for owners whose jobs wait though their guarantee is idle: told by who places jobs, and no
        part of the state.
        """
        self._branches: dict[Account, Branch] = {}
        self._cohorts: dict[str, Cohort] = {}
        self._is_void = True
        self._at_rest: QuotaTree | None = None
        self._index: QuotaIndex | None = None

    def void(self) -> None:
        """A quota has changed: make everything anew at the next question."""
        self._is_void, self._at_rest = True, None

    @property
    def index(self) -> QuotaIndex:
        """Which tenant has which quotas; counted at the first question, and kept by delta from then on. No question
        comes while a snapshot is read, which fills the table itself.
        """
        if self._index is None:
            self._index = QuotaIndex.of(self.quotas.values())
        return self._index

    def changed(self, before: Quota | None, after: Quota | None) -> None:
        """One quota took the place of another of the same account; None: there is none."""
        if self._index is not None:
            self._index.change(before, after)
        self.void()

    @property
    def at_rest(self) -> QuotaTree:
        """This tree while nothing is in use."""
        if self._at_rest is None:
            self._at_rest = QuotaTree(self.quotas, {})
        return self._at_rest

    @property
    def branches(self) -> dict[Account, Branch]:
        """Every account that has a quota, or that one with a quota names as its parent."""
        if self._is_void:
            self._grow()
        return self._branches

    @property
    def cohorts(self) -> dict[str, Cohort]:
        """The GPU types of which any tenant has a quota."""
        if self._is_void:
            self._grow()
        return self._cohorts

    def differs_from_recount(self) -> list[str]:
        """What is not as a tree made anew would have it; in words."""
        fresh, told = QuotaTree(self.quotas, self.usage), list[str]()
        for account in sorted({**self.branches, **fresh.branches}):
            kept, anew = (tree.branches.get(account) for tree in (self, fresh))
            if kept is None or anew is None or kept.numbers != anew.numbers:
                told.append(f"{account} is counted as {kept and kept.numbers}, it is {anew and anew.numbers}")
        for gpu_type in sorted({**self.cohorts, **fresh.cohorts}):
            idle, idle_anew = (tree.cohorts[gpu_type].numbers for tree in (self, fresh))
            if idle != idle_anew:
                told.append(f"of {gpu_type} {idle} are counted idle, these are {idle_anew}")
        return told

    def _grow(self) -> None:
        self._branches, self._cohorts = {}, {}
        for account, quota in self.quotas.items():
            self._branches[account] = Branch(account, quota, self._cohort(account))
        for branch in list(self._branches.values()):
            if branch.quota.parent is not None:
                branch.parent = self._above((branch.quota.parent, branch.account[1]))
        for branch in leaves_first(self._branches):
            self._count(branch)
        self._is_void = False

    def _cohort(self, account: Account) -> Cohort:
        return self._cohorts.setdefault(account[1], Cohort())

    def _above(self, account: Account) -> Branch:
        """The branch of a parent, which needs no quota of its own."""
        branch = self._branches.get(account)
        if branch is None:
            quota = Quota(tenant=account[0], gpu_type=account[1])
            branch = self._branches[account] = Branch(account, quota, self._cohort(account))
        return branch

    def _count(self, branch: Branch) -> None:
        """Everything of a branch whose children are counted, and its part in what is above it."""
        quota, parent, cohort = branch.quota, branch.parent, branch.cohort
        branch.guaranteed_below_milli = branch.guaranteed_milli
        branch.guaranteed_milli = max(quota.guaranteed_milli, branch.guaranteed_milli)
        branch.own_milli = branch.guaranteed_milli - branch.home_below_milli
        lent_max = quota.lend_limit_milli if quota.lends else 0
        branch.home_milli = 0 if lent_max is None else max(0, branch.own_milli - lent_max)
        borrowed_max = quota.borrow_limit_milli if quota.borrows else 0
        branch.drawn_max_milli = None if borrowed_max is None else branch.own_milli + borrowed_max
        branch.used_milli = self.usage.get(branch.account, 0)
        branch.drawn_milli = branch.used_milli - branch.served_below_milli
        cohort.home_idle_milli += branch.home_idle_milli
        cohort.has_guarantees = cohort.has_guarantees or branch.guaranteed_milli > 0
        if parent is None:
            cohort.guaranteed_idle_milli += branch.idle_milli
            return
        parent.guaranteed_milli += branch.guaranteed_milli
        parent.idle_below_milli += branch.idle_milli
        parent.home_below_milli += branch.home_below_milli + branch.home_milli
        parent.served_below_milli += branch.served_below_milli + min(branch.home_milli, branch.drawn_milli)


def leaves_first(branches: dict[Account, Branch]) -> list[Branch]:
    """All branches, each before its parent."""
    children = dict.fromkeys(branches, 0)
    for branch in branches.values():
        if branch.parent is not None:
            children[branch.parent.account] += 1
    found = [branch for account, branch in branches.items() if not children[account]]
    for branch in found:
        parent = branch.parent
        if parent is not None:
            children[parent.account] -= 1
            if not children[parent.account]:
                found.append(parent)
    return found
