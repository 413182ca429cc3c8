"""How much of a GPU type a tenant may still start: within its guarantee, and beyond it what others leave idle and
lend. All of it in milli-GPUs.
"""

from __future__ import annotations

from fallow.shared.cluster.quota.tree import Account, Branch, QuotaTree


def firm_room(tree: QuotaTree, account: Account, free_milli: int) -> int:
    """How much may start that can never be taken back: only what is guaranteed to the tenant, or else to the next one
    above it, and there to no other tenant; or else what is guaranteed to no tenant in the cell, of which `free_milli`
    is free.
    """
    branch = tree.branches.get(account)
    cohort = tree.cohorts.get(account[1])
    while branch is not None:
        if branch.guaranteed_milli:
            return max(0, branch.guaranteed_milli - branch.used_milli - branch.idle_below_milli)
        branch = branch.parent
    return max(0, free_milli - (0 if cohort is None else cohort.guaranteed_idle_milli))


def has_guarantee(tree: QuotaTree, account: Account) -> bool:
    """Whether anything is guaranteed to the tenant, or to one above it."""
    return any(branch.guaranteed_milli for branch in lineage(tree.branches.get(account)))


def drawn_from_cell(branch: Branch | None, more_milli: int) -> int:
    """How much of `more_milli` comes from what all tenants of the cell share, because it is at home nowhere below."""
    while branch is not None and more_milli:
        more_milli, branch = branch.passed_on(more_milli), branch.parent
    return more_milli


class Borrower:
    """A tenant that wants so much more of a GPU type: which owners it would borrow that from. Asked of every owner for
    which anything is kept, at each start.
    """

    __slots__ = ("_depths", "_fits", "_tree", "above", "fits_in")

    def __init__(self, tree: QuotaTree, tenant: str, gpu_type: str, more_milli: int) -> None:
        self._tree = tree
        line = lineage(tree.branches.get((tenant, gpu_type)))
        self._depths = {branch.account: depth for depth, branch in enumerate(line)}
        self.above = [*self._depths]
        """Its own account and those above it that have a quota."""
        self._fits = [False]
        self.fits_in: Account | None = None
        """The lowest of these into whose guarantee it fits whole; None where there is none."""
        for branch in line:
            fits = bool(branch.guaranteed_milli) and branch.used_milli + more_milli <= branch.guaranteed_milli
            if fits and self.fits_in is None:
                self.fits_in = branch.account
            self._fits.append(fits or self._fits[-1])

    def is_below(self, owner: Account) -> bool:
        """Whether the owner stands above the tenant, or is it."""
        return owner in self._depths

    def borrows_from(self, owner: Account) -> bool:
        """Whether it would borrow from this owner: it fits whole into no guarantee of the tenant, or of those above it
        that do not stand above the owner too.
        """
        branch = self._tree.branches.get(owner)
        while branch is not None and branch.account not in self._depths:
            branch = branch.parent
        return not self._fits[-1 if branch is None else self._depths[branch.account]]


def lineage(branch: Branch | None) -> list[Branch]:
    """A branch and all above it."""
    line: list[Branch] = []
    while branch is not None:
        line.append(branch)
        branch = branch.parent
    return line


def available(tree: QuotaTree, account: Account, free_milli: int) -> int:
    """How much more a tenant's preemptible jobs may use, of which `free_milli` are free: the most that passes no limit
    and no right to borrow on the way up, and leaves others what they do not lend.
    """
    return within_rooms(tree, account, left_by_others(tree, account, free_milli))


def left_by_others(tree: QuotaTree, account: Account, free_milli: int) -> int:
    """How much others leave the tenant of what is free: what it does not lend itself, and what is kept for no owner."""
    cohort = tree.cohorts.get(account[1])
    if cohort is None:
        return max(0, free_milli)
    at_home = sum(branch.home_idle_milli for branch in lineage(tree.branches.get(account)))
    return min(free_milli, at_home + max(0, free_milli - cohort.home_idle_milli))


def within_rooms(tree: QuotaTree, account: Account, milli: int) -> int:
    """As much of that as passes no limit and no right to borrow on the way up."""
    return max(0, min([milli, *(room for _, room in rooms(tree, account) if room is not None)]))


def rooms(tree: QuotaTree, account: Account) -> list[tuple[Account, int | None]]:
    """How much more may start as far as the limit and the right to borrow of each account of the tenant's line go, from
    the leaf up; None where neither binds. Negative where a limit was lowered below the use.
    """
    found, at_home = list[tuple[Account, int | None]](), 0
    for branch in lineage(tree.branches.get(account)):
        limit, drawn_max = branch.quota.limit_milli, branch.drawn_max_milli
        by_limit = None if limit is None else limit - branch.used_milli
        by_draw = None if drawn_max is None else at_home + max(0, drawn_max - branch.drawn_milli)
        found.append((branch.account, min([most for most in (by_limit, by_draw) if most is not None], default=None)))
        at_home += branch.home_idle_milli
    return found
