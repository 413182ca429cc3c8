"""Quotas that are set one after the other, each only if it goes with all that are there.

To try one costs as much as its tenant stands deep, and where it moves as stand below it, however many others there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from fallow.shared.cluster.quota.rules import LEVELS_MAX, Fault, contradiction, fault_in_pools, fault_of_holder
from fallow.shared.cluster.quota.tree import Account, Quotas
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import Quota


class QuotasOneByOne:
    """The quotas so far. `below_milli` is what the children of an account are guaranteed together."""

    def __init__(self, quotas: Quotas, tenants: Collection[str], gpus: Mapping[str, int]) -> None:
        """`tenants` may be parents without having a quota; `gpus` are those of the pools, by type, where a type has
        any.
        """
        self._tenants, self._gpus = tenants, gpus
        self._together_milli = Counter[str]()
        self._quotas: Quotas = {}
        self._children: dict[Account, dict[Account, None]] = {}
        self._below_milli: Counter[Account] = Counter()
        for account, quota in quotas.items():
            self._place(account, quota)

    def place(self, quota: Quota) -> tuple[Quota, Fault | None]:
        """Set it without its guarantee, whatever rule that breaks, so that its limit counts, and what it is now. It
        stands where it says; or, with the reason, where it stood, if the log may not hold it there.
        """
        least, account = replace(quota, guaranteed_milli=0), (quota.tenant, quota.gpu_type)
        before, why = self._quotas.get(account), contradiction(self._quotas, least)
        if why is not None and before is not None:
            least = replace(least, parent=before.parent)
        if contradiction(self._quotas, least) is not None:
            least = replace(least, parent=None)
        self._place(account, least)
        if why is not None:
            return least, Fault(quota.tenant, quota.gpu_type, "parent", repr(quota.parent), why)
        is_too_deep = self._level(account) - 1 + self._levels_from(account) > LEVELS_MAX
        return least, self._too_deep(quota) if is_too_deep else None

    def put(self, quota: Quota) -> Fault | None:
        """Set it; or the rule that it would break, and nothing is changed."""
        why = contradiction(self._quotas, quota)
        if why is not None:
            return Fault(quota.tenant, quota.gpu_type, "quota", "", why)
        account = (quota.tenant, quota.gpu_type)
        before, together_milli = self._quotas.get(account), self._together_milli[quota.gpu_type]
        self._place(account, quota)
        is_moved = before is None or before.parent != quota.parent
        fault = (self._fault_of_place(account, quota) if is_moved else None) or self._fault_above(account)
        if fault is None and self._together_milli[quota.gpu_type] > together_milli:
            fault = self._fault_in_pools(quota.gpu_type)
        if fault is not None:
            self._place(account, before)
        return fault

    def own_fault(self, quota: Quota) -> Fault | None:
        """The rule that this one breaks, as it is there: it stands below another in a line that is too deep, or those
        below it are guaranteed more than it may have.
        """
        account = (quota.tenant, quota.gpu_type)
        if quota.parent is not None and self._level(account) - 1 + self._levels_from(account) > LEVELS_MAX:
            return self._too_deep(quota)
        return fault_of_holder(quota, self._guaranteed_milli(account))

    def _place(self, account: Account, quota: Quota | None) -> None:
        """Take the account out from below its parent, and put it where its quota says, with all below it."""
        above = self._above(account)
        if above is not None:
            del self._children[above][account]
        self._guarantee(above, -self._guaranteed_milli(account), account[1])
        self._quotas.pop(account, None)
        if quota is not None:
            self._quotas[account] = quota
        above = self._above(account)
        if above is not None:
            self._children.setdefault(above, {})[account] = None
        self._guarantee(above, self._guaranteed_milli(account), account[1])

    def _guarantee(self, account: Account | None, more_milli: int, gpu_type: str) -> None:
        """The children of an account are guaranteed so much more, or all tenants that stand below none (None): what
        does not fit into its own guarantee is so much more for those above it.
        """
        while account is not None and more_milli:
            before_milli = self._guaranteed_milli(account)
            self._below_milli[account] += more_milli
            more_milli = self._guaranteed_milli(account) - before_milli
            account = self._above(account)
        if account is None:
            self._together_milli[gpu_type] += more_milli

    def _guaranteed_milli(self, account: Account) -> int:
        quota = self._quotas.get(account)
        return max(0 if quota is None else quota.guaranteed_milli, self._below_milli[account])

    def _above(self, account: Account) -> Account | None:
        quota = self._quotas.get(account)
        return None if quota is None or quota.parent is None else (quota.parent, account[1])

    def _fault_in_pools(self, gpu_type: str) -> Fault | None:
        types = [gpu_type] if gpu_type in self._gpus else []
        return fault_in_pools(self._together_milli, types, self._gpus)

    def _fault_of_place(self, account: Account, quota: Quota) -> Fault | None:
        parent = quota.parent
        if parent is None:
            return None if self._levels_from(account) <= LEVELS_MAX else self._too_deep(quota)
        if self._level(account) - 1 + self._levels_from(account) > LEVELS_MAX:
            return self._too_deep(quota)
        if (parent, quota.gpu_type) in self._quotas or parent in self._tenants:
            return None
        rule = "is no tenant of the cell file, and has no quota of this GPU type"
        return Fault(quota.tenant, quota.gpu_type, "parent", repr(parent), rule)

    def _too_deep(self, quota: Quota) -> Fault:
        rule = f"stands more than {LEVELS_MAX} levels deep, or others below it do"
        return Fault(quota.tenant, quota.gpu_type, "parent", repr(quota.parent), rule)

    def _level(self, account: Account) -> int:
        above, level = self._above(account), 1
        while above is not None:
            above, level = self._above(above), level + 1
        return level

    def _levels_from(self, account: Account) -> int:
        """How many levels there are from here down, with this one."""
        level, levels = [account], 0
        while level:
            levels += 1
            level = [below for each in level for below in self._children.get(each, ())]
        return levels

    def _fault_above(self, account: Account | None) -> Fault | None:
        """The rules between a tenant and its children, for the tenant and all above it."""
        while account is not None:
            quota = self._quotas.get(account)
            fault = None if quota is None else fault_of_holder(quota, self._guaranteed_milli(account))
            if fault is not None:
                return fault
            account = self._above(account)
        return None
