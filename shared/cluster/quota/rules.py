"""The rules by which quotas must go together. Who breaks one is refused with its name and the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fallow.shared.cluster.quota.tree import Account, Branch, Quotas, QuotaTree, leaves_first
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota

LEVELS_MAX = 16
"""So many tenants stand in one line at most, from the top to the lowest one: a start counts at each of them."""

QUOTAS_MAX = 20_000
"""So many quotas a cell has at most, each of one tenant and one GPU type: all of them are looked at in one decision."""

_LINE_MAX = 2 * LEVELS_MAX
"""While a change is put in force quota by quota, tenants that have moved stand above others that have not."""


def contradiction(quotas: Quotas, quota: Quota) -> str | None:
    """Why this quota can never be set beside the others, or None: what the log itself may not hold. It looks at so many
    above the tenant only as a line may have.
    """
    if quota.limit_milli is not None and quota.limit_milli < quota.guaranteed_milli:
        return f"limit {_gpus(quota.limit_milli)} is below the guarantee {_gpus(quota.guaranteed_milli)}"
    seen, parent = {quota.tenant: None}, quota.parent
    while parent is not None:
        if parent in seen:
            return "cycle: " + " -> ".join([*seen, parent])
        if len(seen) == _LINE_MAX:
            return f"stands more than {LEVELS_MAX} levels deep"
        seen[parent] = None
        above = quotas.get((parent, quota.gpu_type))
        parent = above.parent if above is not None else None
    return None


ALL = "*"
"""All of a cell's tenants."""


class Fault(NamedTuple):
    """A rule that quotas break together: whose (`*` for all of a cell's tenants), of which type, in which field, with
    which value in GPUs or which name.
    """

    tenant: str
    gpu_type: str
    field: str
    value: str
    rule: str

    def __str__(self) -> str:
        """For people."""
        if self.tenant == ALL:
            return f"all tenants together would be {self.field} {self.value} of {self.gpu_type}, {self.rule}"
        at = f"{self.field} {self.value}: " if self.value else ""
        return f"{self.tenant}/{self.gpu_type}: {at}{self.rule}"


def fault_among(quotas: Quotas, changed: Sequence[Quota], tenants: Collection[str]) -> Fault | None:
    """The first rule that these quotas break, of which some are `changed`, or None. `tenants` may be parents without
    having a quota.
    """
    for quota in changed:
        why = contradiction(quotas, quota)
        if why is not None:
            return Fault(quota.tenant, quota.gpu_type, "quota", "", why)
    tree = QuotaTree(quotas, {})
    deep = _too_deep(tree)
    if deep is not None:
        rule = f"stands more than {LEVELS_MAX} levels deep"
        return Fault(deep.account[0], deep.account[1], "parent", repr(deep.quota.parent), rule)
    for quota in changed:
        parent = quota.parent
        if parent is not None and (parent, quota.gpu_type) not in quotas and parent not in tenants:
            rule = "is no tenant of the cell file, and has no quota of this GPU type"
            return Fault(quota.tenant, quota.gpu_type, "parent", repr(parent), rule)
        found = _holds_too_much(tree.branches[quota.tenant, quota.gpu_type])
        if found is not None:
            return found
    return None


def _too_deep(tree: QuotaTree) -> Branch | None:
    """A tenant below the lowest level that there may be, or None."""
    levels: dict[Account, int] = {}
    for branch in reversed(leaves_first(tree.branches)):
        level = 1 if branch.parent is None else levels[branch.parent.account] + 1
        if level > LEVELS_MAX:
            return branch
        levels[branch.account] = level
    return None


def _holds_too_much(branch: Branch) -> Fault | None:
    """The rules between a tenant and its children, for the tenant and all above it."""
    above: Branch | None = branch
    while above is not None:
        fault = fault_of_holder(above.quota, above.guaranteed_milli)
        if fault is not None:
            return fault
        above = above.parent
    return None


def fault_of_holder(quota: Quota, together_milli: int) -> Fault | None:
    """Whether a tenant's children are guaranteed more together than it may hold itself."""
    for field, most in (("guaranteed", quota.guaranteed_milli or None), ("limit", quota.limit_milli)):
        if most is not None and together_milli > most:
            rule = f"the children of {quota.tenant!r} are guaranteed {_gpus(together_milli)} GPUs together"
            return Fault(quota.tenant, quota.gpu_type, field, _gpus(most), rule)
    return None


def guaranteed_by_type(quotas: Quotas) -> Counter[str]:
    """How much of each GPU type is guaranteed to all tenants together, in thousandths."""
    found = Counter[str]()
    for account, branch in QuotaTree(quotas, {}).branches.items():
        if branch.parent is None:
            found[account[1]] += branch.guaranteed_milli
    return found


def fault_in_pools(guaranteed_milli: Counter[str], gpu_types: Iterable[str], gpus: Mapping[str, int]) -> Fault | None:
    """The first of these GPU types of which more is guaranteed than the `gpus` of a cell's pools, or None."""
    for gpu_type in gpu_types:
        there = gpus.get(gpu_type, 0)
        if guaranteed_milli[gpu_type] > there * GPU:
            together = _gpus(guaranteed_milli[gpu_type])
            return Fault(ALL, gpu_type, "guaranteed", together, f"the pools have {there}")
    return None


_CLIMB_MAX = 4 * LEVELS_MAX
"""No line of quotas is as long, whatever contradicts; a circle has no end."""


def top_down(quotas: Quotas, changed: Iterable[Quota]) -> list[Quota]:
    """The changed quotas in an order in which no step makes a cycle, if all of `quotas` together have none: those of
    parents first.
    """
    return sorted(changed, key=lambda quota: len(_line(quotas, quota)))


def _line(quotas: Quotas, quota: Quota) -> list[Account]:
    line: list[Account] = [(quota.tenant, quota.gpu_type)]
    found: Quota | None = quota
    while found is not None and found.parent is not None and len(line) <= _CLIMB_MAX:
        line.append((found.parent, quota.gpu_type))
        found = quotas.get(line[-1])
    return line


def _gpus(milli: int) -> str:
    whole, thousandths = divmod(milli, GPU)
    return f"{whole}.{thousandths:03}".rstrip("0") if thousandths else str(whole)
