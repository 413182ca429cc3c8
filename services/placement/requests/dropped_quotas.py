"""Quotas that a cell file no longer has.

One whose tenant has no living jobs, and below which no other stands, is removed. Another one, where the file still
names its tenant, comes to say nothing: no limit, and no guarantee. For starts that is the same. Where the tenant goes
too, it keeps its limit and its place, and guarantees nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fallow.services.placement.decision.decision import STEPS_OF_AN_EFFECT, DecisionBuilder
from fallow.shared.cluster.model.config import CellFile, TenantQuota
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import Quota


def dropped(state: CellState, file: CellFile, in_force: CellFile | None, *, anew: bool) -> dict[Account, Quota]:
    """The quotas that any file has set and this one has not, as they are when they say nothing; of tenants that it does
    not name, as they are without guarantee. One that was changed at run time is among them where the file is put in
    force `anew`, and where its tenant goes: where the file `in_force` until now names it.
    """
    parents = {tenant.name: tenant.parent for tenant in file.tenants}
    kept = {(quota.tenant, quota.gpu_type) for quota in file.quotas()}
    before = frozenset(() if in_force is None else (tenant.name for tenant in in_force.tenants))
    had = frozenset(() if in_force is None else ((quota.tenant, quota.gpu_type) for quota in in_force.quotas()))
    found: dict[Account, Quota] = {}
    for account, quota in state.quotas.items():
        is_as_set = state.quotas_of_file.get(account)
        if account in kept:
            continue
        if account[0] not in parents:
            if is_as_set or account[0] in before:
                found[account] = replace(quota, guaranteed_milli=0)
        elif is_as_set or (anew and (is_as_set is not None or account in had)):
            found[account] = says_nothing(account, parents[account[0]])
    return found


def says_nothing(account: Account, parent: str | None) -> Quota:
    """A quota that means the same as none."""
    return TenantQuota(gpu_type=account[1]).in_milli(account[0], parent)


def guarantee_nothing(decision: DecisionBuilder, quotas: Mapping[Account, Quota]) -> bool:
    """Bring those of these quotas that guarantee something to what they say when they guarantee nothing, where they
    stand: so they are in no tenant's way. Whether the record had room for all.
    """
    for account, none in quotas.items():
        now = decision.state.quotas.get(account)
        if now is None or not now.guaranteed_milli:
            continue
        if decision.is_full:
            return False
        decision.emit(e.QuotaSet(quota=replace(none, parent=now.parent), of_file=True))
    return True


def remove_unused(decision: DecisionBuilder, accounts: Collection[Account]) -> bool:
    """Remove those of these quotas of whose tenants no job lives, and below which no other stands; a parent's when
    those below it are removed. Whether the record had room for all.
    """
    state = decision.state
    live = {job.spec.tenant for job in state.jobs.values()} if accounts else ()
    may_go = dict.fromkeys(account for account in accounts if account[0] not in live)
    lowest = [each for each in sorted(may_go) if each in state.quotas and each not in state.tree.index.children]
    for account in lowest:  # it grows meanwhile
        if decision.is_full:
            return False
        parent = state.quotas[account].parent
        decision.emit(e.QuotaRemoved(tenant=account[0], gpu_type=account[1]))
        decision.steps += STEPS_OF_AN_EFFECT
        above = None if parent is None else (parent, account[1])
        if above in may_go and above in state.quotas and above not in state.tree.index.children:
            lowest.append(above)
    return True
