"""Of quotas: how many stand below each account, and of which GPU types each tenant has one.

Kept by delta, so that to remove a quota, or to ask for all of a tenant, costs the same however many others there are.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from dataclasses import dataclass, field

from fallow.shared.events.operations import Quota


@dataclass(slots=True)
class QuotaIndex:
    """Neither table names an account, or a tenant, of which there is nothing to tell."""

    children: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many quotas name each account as the one above them."""
    types: dict[str, dict[str, None]] = field(default_factory=dict)

    @classmethod
    def of(cls, quotas: Iterable[Quota]) -> QuotaIndex:
        """Counted from nothing."""
        index = cls()
        for quota in quotas:
            index.change(None, quota)
        return index

    def types_of(self, tenant: str) -> KeysView[str]:
        """The GPU types of which the tenant has a quota, in no order."""
        return self.types.get(tenant, _NO_TYPES).keys()

    def change(self, before: Quota | None, after: Quota | None) -> None:
        """One quota took the place of another of the same account; None: there was none, or is none any more."""
        if before is not None:
            self._take_out(before)
        if after is not None:
            self._put_in(after)

    def _put_in(self, quota: Quota) -> None:
        self.types.setdefault(quota.tenant, {})[quota.gpu_type] = None
        if quota.parent is not None:
            above = (quota.parent, quota.gpu_type)
            self.children[above] = self.children.get(above, 0) + 1

    def _take_out(self, quota: Quota) -> None:
        types = self.types[quota.tenant]
        del types[quota.gpu_type]
        if not types:
            del self.types[quota.tenant]
        if quota.parent is not None:
            above = (quota.parent, quota.gpu_type)
            left = self.children.pop(above) - 1
            if left:
                self.children[above] = left


_NO_TYPES: dict[str, None] = {}
