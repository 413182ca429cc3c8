"""How much of which GPU type each tenant uses, and how much it may: a tree of tenants per GPU type.

Use is counted at the tenant and at each of its ancestors, so one look at each tells whether a start would pass a limit.
"""

from __future__ import annotations

from fallow.shared.cluster.fold.undo_log import Entry, UndoLog
from fallow.shared.cluster.quota.tree import Account, Branch, Quotas, QuotaTree, Usage
from fallow.shared.events.operations import Quota

__all__ = ["Account", "QuotaTree", "Quotas", "Usage", "accounts", "charge", "over_limit", "remove_quota", "set_quota"]


def accounts(quotas: Quotas, tenant: str, gpu_type: str) -> list[Account]:
    """The tenant's account and those of its ancestors, from the leaf up."""
    line: list[Account] = [(tenant, gpu_type)]
    quota = quotas.get(line[0])
    while quota is not None and quota.parent is not None:
        line.append((quota.parent, gpu_type))
        quota = quotas.get(line[-1])
    return line


def over_limit(tree: QuotaTree, tenant: str, gpu_type: str, more_milli: int) -> Account | None:
    """The first account whose limit, or whose right to borrow, would be passed by `more_milli`; or None."""
    if not tree.quotas:
        return None
    branch, drawn_milli = tree.branches.get((tenant, gpu_type)), more_milli
    while branch is not None:
        limit, most = branch.quota.limit_milli, branch.drawn_max_milli
        if limit is not None and branch.used_milli + more_milli > limit:
            return branch.account
        if most is not None and drawn_milli and branch.drawn_milli + drawn_milli > most:
            return branch.account
        if branch.home_milli:
            drawn_milli = branch.passed_on(drawn_milli)
        branch = branch.parent
    return None


def charge(undo: list[Entry], tree: QuotaTree, account: Account, more_milli: int) -> None:
    """Add `more_milli` (negative: give back) to the account and those above it. An account at 0 is not kept."""
    branch, usage = tree.branches.get(account) if tree.quotas else None, tree.usage
    if branch is not None:
        undo.append((_charge_line, usage, branch, -more_milli))
        _charge_line(usage, branch, more_milli)
        return
    before = usage.get(account, 0)
    undo.append((_use_again, usage, account, before))
    _use_again(usage, account, before + more_milli)


def _charge_line(usage: Usage, leaf: Branch, more_milli: int) -> None:
    """The branch and all above it: all of the use counts at each, what is drawn only as far as it does not stay at
    home. To charge as much less puts everything back.
    """
    cohort, branch = leaf.cohort, leaf
    cohort.touched[leaf.account] = None
    drawn_milli, less_idle = more_milli, 0
    while True:
        before = branch.used_milli
        used = before + more_milli
        if used:
            usage[branch.account] = used
        else:
            usage.pop(branch.account, None)
        branch.used_milli = used
        guaranteed = branch.guaranteed_milli
        if guaranteed:
            branch.idle_below_milli -= less_idle
            idle = guaranteed - before if guaranteed > before else 0
            less_idle = idle - (guaranteed - used if guaranteed > used else 0)
        if drawn_milli:
            # What `passed_on` and `home_idle_milli` tell: to ask them here, twice a job, costs more than the answer.
            drawn = branch.drawn_milli
            branch.drawn_milli = drawn + drawn_milli
            home = branch.home_milli
            if home:
                above, now_above = drawn - home, drawn + drawn_milli - home
                cohort.home_idle_milli += max(0, -now_above) - max(0, -above)
                drawn_milli = max(0, now_above) - max(0, above)
        if branch.parent is None:
            break
        branch = branch.parent
    cohort.guaranteed_idle_milli -= less_idle


def _use_again(usage: Usage, account: Account, milli: int) -> None:
    if milli:
        usage[account] = milli
    else:
        usage.pop(account, None)


def set_quota(journal: UndoLog, tree: QuotaTree, quota: Quota) -> None:
    """Put a quota in force. If it moves its tenant to another parent, its use moves along."""
    quotas, usage = tree.quotas, tree.usage
    account = (quota.tenant, quota.gpu_type)
    used = usage.get(account, 0)
    old_line = accounts(quotas, *account)[1:]
    before_it = quotas.get(account)
    journal.put(quotas, account, quota)
    journal.entries.append((_change_back, tree, before_it, quota))
    tree.changed(before_it, quota)
    new_line = accounts(quotas, *account)[1:]
    if not used or old_line == new_line:
        return
    for line, change in ((old_line, -used), (new_line, used)):
        for above in line:
            before = usage.get(above, 0)
            journal.entries.append((_use_again, usage, above, before))
            _use_again(usage, above, before + change)


def remove_quota(journal: UndoLog, tree: QuotaTree, account: Account) -> None:
    """Take a quota out of force whose account has no use, and none below it."""
    quota = tree.quotas[account]
    journal.drop(tree.quotas, account)
    journal.entries.append((_change_back, tree, quota, None))
    tree.changed(quota, None)


def _change_back(tree: QuotaTree, before: Quota | None, after: Quota | None) -> None:
    tree.changed(after, before)
