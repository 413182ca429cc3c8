"""How a quota of the cell file is told that goes not with what was set at run time."""

from __future__ import annotations

from collections.abc import Container, Mapping

from fallow.shared.cluster.quota.rules import Fault
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.operations import Quota
from fallow.shared.near import first_named

NAMED_MOST = 3


def set_at_run_time(quotas: Quotas, file: Quotas, among: Container[Account]) -> dict[Account, list[str]]:
    """For each account whose quota is not that of the file, or below which others guarantee something that no file
    says: the tenants with such quotas. What the file itself has just set, `among` these, is none of them.
    """
    found: dict[Account, list[str]] = {}
    for account, quota in quotas.items():
        if account in among or file.get(account) == quota:
            continue
        found.setdefault(account, []).append(account[0])
        above = quota.parent if quota.guaranteed_milli else None
        while above is not None:
            at = (above, account[1])
            found.setdefault(at, []).append(account[0])
            above = quotas[at].parent if at in quotas else None
    return found


def told(quota: Quota, put: Quota, fault: Fault, run_time: Mapping[Account, list[str]]) -> str:
    """Why this quota of the file is not in force as it says, but as it was `put`, and which tenants are in its way."""
    lost = ["without its guarantee"] if put.guaranteed_milli != quota.guaranteed_milli else []
    lost += [f"not below {quota.parent}"] if put.parent != quota.parent else []
    names = run_time.get((fault.tenant, fault.gpu_type), ())
    beside = f", for what was set at run time of {first_named(names, NAMED_MOST)}" if names else ""
    return f"{quota.tenant}/{quota.gpu_type} is set {' and '.join(lost) or 'all the same'}{beside}: {fault}"
