"""Quotas of the cell file that go not with what was set at run time: which they are, and how they are told."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from fallow.shared.cluster.quota.quotas_one_by_one import QuotasOneByOne
from fallow.shared.cluster.quota.rules import Fault
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.operations import Quota
from fallow.shared.events.value import replace
from fallow.shared.near import first_named

NAMED_MOST = 3


def contradictions(quotas: Quotas, file: Quotas, before: Quotas, tenants: Collection[str]) -> list[str]:
    """What is to be told of the quotas of a file that has come to be in force beside others: those that lack their
    guarantee or stand elsewhere, and those that are set and break a rule all the same. What the file `before` had
    likewise and lacks its guarantee has lost that by an operator, or was told then.
    """
    tried, found = QuotasOneByOne(quotas, tenants), list[tuple[Quota, Quota, Fault]]()
    for account, quota in file.items():
        now = quotas.get(account)
        if now is None:
            continue
        fault = None  # so it stays where an operator has changed it since
        if now == quota:
            fault = tried.own_fault(quota)
        elif now == replace(quota, guaranteed_milli=0, parent=now.parent) and before.get(account) != quota:
            fault = _why_lesser(tried, quota)
        if fault is not None:
            found.append((quota, now, fault))
    lesser = {(quota.tenant, quota.gpu_type): None for quota, now, _ in found if now != quota}
    run_time = _set_at_run_time(quotas, file, lesser) if found else {}
    return [_told(quota, now, fault, run_time) for quota, now, fault in found]


def _why_lesser(tried: QuotasOneByOne, quota: Quota) -> Fault:
    """Why a quota is not as the file has it. Nothing may keep it so any more: then what did has gone since."""
    gone = Fault(quota.tenant, quota.gpu_type, "quota", "", "contradicted others that have changed since; reload again")
    return tried.put(quota) or tried.own_fault(quota) or gone


def _set_at_run_time(quotas: Quotas, file: Quotas, among: Container[Account]) -> dict[Account, list[str]]:
    """For each account whose quota is not that of the file, or below which others guarantee something that no file
    says: the tenants with such quotas. What the file itself has set as far as it could (`among`) is none of them.
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


def _told(quota: Quota, put: Quota, fault: Fault, run_time: Mapping[Account, list[str]]) -> str:
    """Why this quota of the file is not in force as it says, but as it was `put`, and which tenants are in its way."""
    lost = ["without its guarantee"] if put.guaranteed_milli != quota.guaranteed_milli else []
    lost += [f"not below {quota.parent}"] if put.parent != quota.parent else []
    names = run_time.get((fault.tenant, fault.gpu_type), ())
    beside = f", for what was set at run time of {first_named(names, NAMED_MOST)}" if names else ""
    return f"{quota.tenant}/{quota.gpu_type} is set {' and '.join(lost) or 'all the same'}{beside}: {fault}"
