"""Quotas of the cell file that go not with what was set at run time: which they are, and how they are told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quotas_one_by_one import QuotasOneByOne
from fallow.shared.cluster.quota.rules import ALL, Fault, fault_in_pools, guaranteed_by_type
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.operations import Quota
from fallow.shared.near import first_named

NAMED_MAX = 3


def contradictions(
    state: CellState, file: Quotas, before: Quotas, tenants: Collection[str], gpus: Mapping[str, int]
) -> list[str]:
    """What is to be told of the quotas of a file that has come to be in force beside others: those that lack their
    guarantee or stand elsewhere, those that are set and break a rule all the same, and GPU types of which more is
    guaranteed than the `gpus` of the pools. What the file `before` had likewise was told then.
    """
    tried, found = QuotasOneByOne(state.quotas, tenants, gpus), list[tuple[Quota, Quota, Fault]]()
    for account, quota in file.items():
        now = state.quotas.get(account)
        if now is None or not state.quotas_of_file.get(account):
            continue  # so it stays where an operator has changed it since
        fault = None
        if now == quota:
            fault = tried.own_fault(quota)
        elif before.get(account) != quota:
            fault = _why_lesser(tried, quota)
        if fault is not None:
            found.append((quota, now, fault))
    too_many = _too_many_guaranteed(state, gpus)
    run_time = _set_at_run_time(state) if found or too_many else {}
    told = [_told(quota, now, fault, run_time) for quota, now, fault in found]
    return told + [f"more is guaranteed than there is{_beside(fault, run_time)}: {fault}" for fault in too_many]


def _too_many_guaranteed(state: CellState, gpus: Mapping[str, int]) -> list[Fault]:
    together = guaranteed_by_type(state.quotas)
    faults = [fault_in_pools(together, (gpu_type,), gpus) for gpu_type in gpus]
    return [fault for fault in faults if fault is not None]


def _why_lesser(tried: QuotasOneByOne, quota: Quota) -> Fault:
    """Why a quota is not as the file has it. Nothing may keep it so any more: then what did has gone since."""
    gone = Fault(quota.tenant, quota.gpu_type, "quota", "", "contradicted others that have changed since; reload again")
    return tried.put(quota) or tried.own_fault(quota) or gone


def _set_at_run_time(state: CellState) -> dict[Account, list[str]]:
    """For each account whose quota is not as a file has set it, or below which others guarantee something that no file
    says, and for all tenants together: the tenants with such quotas.
    """
    quotas, found = state.quotas, dict[Account, list[str]]()
    for account, quota in quotas.items():
        if state.quotas_of_file.get(account):
            continue
        found.setdefault(account, []).append(account[0])
        if not quota.guaranteed_milli:
            continue
        found.setdefault((ALL, account[1]), []).append(account[0])
        above = quota.parent
        while above is not None:
            at = (above, account[1])
            found.setdefault(at, []).append(account[0])
            above = quotas[at].parent if at in quotas else None
    return found


def _told(quota: Quota, put: Quota, fault: Fault, run_time: Mapping[Account, list[str]]) -> str:
    """Why this quota of the file is not in force as it says, but as it was `put`, and which tenants are in its way."""
    lost = ["without its guarantee"] if put.guaranteed_milli != quota.guaranteed_milli else []
    if put.parent != quota.parent:
        lost += [f"not below {quota.parent}" if quota.parent else f"still below {put.parent}"]
    how = " and ".join(lost) or "all the same"
    return f"{quota.tenant}/{quota.gpu_type} is set {how}{_beside(fault, run_time)}: {fault}"


def _beside(fault: Fault, run_time: Mapping[Account, list[str]]) -> str:
    names = run_time.get((fault.tenant, fault.gpu_type), ())
    return f", for what was set at run time of {first_named(names, NAMED_MAX)}" if names else ""
