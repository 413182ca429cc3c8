"""Quotas that a cell file no longer has, though it still names their tenants.

One whose tenant has no living jobs, and below which no other stands, is removed. Another one comes to say nothing: no
limit, and no guarantee. For starts that is the same.
"""

from __future__ import annotations

from collections.abc import Collection

from fallow.services.placement.decision.decision import STEPS_OF_AN_EFFECT, DecisionBuilder
from fallow.shared.cluster.model.config import CellFile, TenantQuota
from fallow.shared.cluster.model.file_in_force import quotas_dropped
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events import effects as e
from fallow.shared.events.operations import Quota


def dropped(state: CellState, file: CellFile, in_force: CellFile | None, *, anew: bool) -> dict[Account, Quota]:
    """The quotas that the file `in_force` until now has and this one has not, as they are when they say nothing. One
    that was changed at run time is among them only where the file is put in force `anew`. Those of tenants that the
    file does not name go by other rules.
    """
    parents = {tenant.name: tenant.parent for tenant in file.tenants}
    found: dict[Account, Quota] = {}
    for quota in () if in_force is None else quotas_dropped(in_force, file):
        account = (quota.tenant, quota.gpu_type)
        now = state.quotas.get(account)
        if now is not None and (anew or now == quota):
            found[account] = says_nothing(account, parents[quota.tenant])
    return found


def says_nothing(account: Account, parent: str | None) -> Quota:
    """A quota that means the same as none."""
    return TenantQuota(gpu_type=account[1]).in_milli(account[0], parent)


def remove_unused(decision: DecisionBuilder, accounts: Collection[Account]) -> bool:
    """Remove those of these quotas of whose tenants no job lives. Whether the record had room for all."""
    live = {job.spec.tenant for job in decision.state.jobs.values()} if accounts else ()
    return remove_lowest(decision, [account for account in accounts if account[0] not in live])


def remove_lowest(decision: DecisionBuilder, accounts: Collection[Account]) -> bool:
    """Remove those of these quotas below which no other stands; a parent's when those below it are removed. Whether the
    record had room for all.
    """
    state, may_go = decision.state, dict.fromkeys(accounts)
    if not may_go:
        return True
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
