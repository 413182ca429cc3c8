"""How much of a GPU type a tenant may still start: within its guarantee, and beyond it what others leave idle and
lend. All of it in milli-GPUs.
"""

from __future__ import annotations

from shared.cluster.quota_tree import Account, Branch, QuotaTree


def firm_room(tree: QuotaTree, account: Account, free_milli: int) -> int:
    """How much may start that can never be taken back: only what is guaranteed to the tenant, or else to the next one
    above it, and there to nobody else; or else what is guaranteed to nobody in the cell, of which `free_milli` is free.
    """
    branch = tree.branches.get(account)
    cohort = tree.cohorts.get(account[1])
    while branch is not None:
        if branch.guaranteed_milli:
            return max(0, branch.guaranteed_milli - branch.used_milli - branch.idle_below_milli)
        branch = branch.parent
    return max(0, free_milli - (0 if cohort is None else cohort.guaranteed_idle_milli))


def drawn_from_cell(branch: Branch | None, more_milli: int) -> int:
    """How much of `more_milli` comes from what all tenants of the cell share, because it is at home nowhere below."""
    while branch is not None and more_milli:
        more_milli, branch = branch.passed_on(more_milli), branch.parent
    return more_milli


def kept_for_waiting(tree: QuotaTree, account: Account, more_milli: int) -> int:
    """How much must stay idle when a job borrows, because its owners wait for it: nobody takes back for them what they
    lent, whatever they may reclaim. Who stays within the guarantee borrows nothing, and owners above the tenant lend to
    their own. Against an owner who waits too only needs count that borrow nothing: else two who each want more than
    their own would keep the room from each other for ever.
    """
    if not tree.waiting:
        return 0
    branch, gpu_type = tree.branches.get(account), account[1]
    if branch is not None and branch.used_milli + more_milli <= branch.guaranteed_milli:
        return 0
    line, kept_milli = lineage(branch), 0
    waits_too = any(tree.waiting.get(above.account) and _lends(above) for above in line)
    for owner, needs in tree.waiting.items():
        keeper = tree.branches.get(owner) if owner[1] == gpu_type else None
        if keeper is not None and keeper not in line:
            most = max((need for need in needs if not waits_too or need <= keeper.idle_milli), default=0)
            kept_milli += min(most, _lends(keeper))
    return kept_milli


def _lends(branch: Branch) -> int:
    """How much of its idle guarantee others may have."""
    return max(0, branch.idle_milli - branch.home_idle_milli)


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
    cohort = tree.cohorts.get(account[1])
    if cohort is None:
        return max(0, free_milli)
    at_home = sum(branch.home_idle_milli for branch in lineage(tree.branches.get(account)))
    most = min(free_milli, at_home + max(0, free_milli - cohort.home_idle_milli))
    return max(0, min([most, *(room for _, room in rooms(tree, account) if room is not None)]))


def rooms(tree: QuotaTree, account: Account) -> list[tuple[Account, int | None]]:
    """How much more may start as far as the limit and the right to borrow of each account of the tenant's line go, from
    the leaf up; None where neither binds. Negative where a limit was lowered below the use.
    """
    found, at_home = list[tuple[Account, int | None]](), 0
    for branch in lineage(tree.branches.get(account)):
        limit, drawn_most = branch.quota.limit_milli, branch.drawn_most_milli
        by_limit = None if limit is None else limit - branch.used_milli
        by_draw = None if drawn_most is None else at_home + max(0, drawn_most - branch.drawn_milli)
        found.append((branch.account, min([most for most in (by_limit, by_draw) if most is not None], default=None)))
        at_home += branch.home_idle_milli
    return found
