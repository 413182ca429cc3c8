"""Who uses how much of which GPU type, and how much anybody may: a tree of tenants per GPU type.

Use is counted at the tenant and at each of its ancestors, so one look at each tells whether a start would pass a limit.
"""

from __future__ import annotations

from shared.cluster.journal import Entry, Journal
from shared.events.operations import Quota

Account = tuple[str, str]
"""(tenant, GPU type)."""

Quotas = dict[Account, Quota]
Usage = dict[Account, int]


def accounts(quotas: Quotas, tenant: str, gpu_type: str) -> list[Account]:
    """The tenant's account and those of its ancestors, from the leaf up."""
    line: list[Account] = [(tenant, gpu_type)]
    quota = quotas.get(line[0])
    while quota is not None and quota.parent is not None:
        line.append((quota.parent, gpu_type))
        quota = quotas.get(line[-1])
    return line


def over_limit(quotas: Quotas, usage: Usage, tenant: str, gpu_type: str, more_milli: int) -> Account | None:
    """The first account whose limit would be passed by `more_milli`, or None."""
    account: Account = (tenant, gpu_type)
    quota = quotas.get(account)
    while quota is not None:
        if quota.limit_milli is not None and usage.get(account, 0) + more_milli > quota.limit_milli:
            return account
        if quota.parent is None:
            return None
        account = (quota.parent, gpu_type)
        quota = quotas.get(account)
    return None


def charge(undo: list[Entry], quotas: Quotas, usage: Usage, account: Account, more_milli: int) -> None:
    """Add `more_milli` (negative: give back) to the account and those above it. An account at 0 is not kept."""
    before = usage.get(account, 0)
    undo.append((_use_again, usage, account, before))
    if before + more_milli:
        usage[account] = before + more_milli
    else:
        usage.pop(account, None)
    quota = quotas.get(account) if quotas else None
    if quota is not None and quota.parent is not None:
        charge(undo, quotas, usage, (quota.parent, account[1]), more_milli)


def _use_again(usage: Usage, account: Account, milli: int) -> None:
    if milli:
        usage[account] = milli
    else:
        usage.pop(account, None)


def contradiction(quotas: Quotas, quota: Quota) -> str | None:
    """Why this quota may not be set beside the others, or None."""
    if quota.limit_milli is not None and quota.limit_milli < quota.guaranteed_milli:
        return f"limit {quota.limit_milli} is below the guarantee {quota.guaranteed_milli}"
    seen, parent = [quota.tenant], quota.parent
    while parent is not None:
        if parent in seen:
            return "cycle: " + " -> ".join([*seen, parent])
        seen.append(parent)
        above = quotas.get((parent, quota.gpu_type))
        parent = above.parent if above is not None else None
    return None


def set_quota(journal: Journal, quotas: Quotas, usage: Usage, quota: Quota) -> None:
    """Put a quota in force. If it moves its tenant to another parent, its use moves along."""
    account = (quota.tenant, quota.gpu_type)
    used = usage.get(account, 0)
    old_line = accounts(quotas, *account)[1:]
    journal.put(quotas, account, quota)
    new_line = accounts(quotas, *account)[1:]
    if not used or old_line == new_line:
        return
    for line, change in ((old_line, -used), (new_line, used)):
        for above in line:
            charge(journal.entries, {}, usage, above, change)
