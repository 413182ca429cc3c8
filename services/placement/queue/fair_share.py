"""How much each tenant has, for fair sharing: its dominant share of GPU time, by its weight.

A tenant's share of one GPU type is the mean of what it holds now and of what it held of late (with a half-life; without
one, what it holds now), relative to all healthy GPUs of that type in the cell, over its weight. Its share is the
largest of these over the types. So a tenant that was idle is owed no more than a few half-lives' worth, and one that
starts many jobs at once goes up at once.

In a tree of tenants shares are compared level by level from the root down: first between the tenants on top, each with
all below it, then between the children of the one that comes first. A parent's own jobs stand beside its children like
those of a child of weight 1. Weight 0, in any type, comes behind all others of its level.
"""

from __future__ import annotations

from typing import NamedTuple

from fallow.shared.cluster.capacity.gpu_types import all_milli, gpu_types_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Quotas, Usage

SHARE_ONE = 1_000_000_000
"""A share is told in billionths of all GPUs of its type."""

LN2_MILLIONTHS = 693_147


class Share(NamedTuple):
    """What tenants of one level are compared by: the smallest comes first."""

    has_no_weight: bool
    share: int
    tenant: str


class Shares:
    """The shares of a cell's tenants at one moment. They follow `usage` as it changes."""

    def __init__(self, state: CellState, now_ms: int, usage: Usage | None = None) -> None:
        """`usage` instead of the state's own: for a caller that asks what would be."""
        self._fair, self._now_ms = state.fair, now_ms
        self._quotas: Quotas = state.quotas
        self._usage = state.usage if usage is None else usage
        self._totals = totals_of(state)
        half_life_ms = state.fair.half_life_ms
        self._held_ms = max(1, half_life_ms * 1_000_000 // LN2_MILLIONTHS)
        """For how long one would have to hold something, to have used as much as who has held it forever."""
        self._halves = 2 if half_life_ms else 1
        self._lately: dict[tuple[str, str], int] = {}
        self._children: dict[str, list[str]] | None = None

    def of(self, tenant: str) -> Share:
        """The share of a tenant with all below it."""
        share, has_no_weight = 0, False
        for gpu_type, total_milli in self._totals:
            weight = self.weight(tenant, gpu_type)
            has_no_weight |= not weight
            both = self._usage.get((tenant, gpu_type), 0) * self._held_ms + self._used(tenant, gpu_type)
            share = max(share, self._relative(both, total_milli, weight))
        return Share(has_no_weight, share, tenant)

    def own(self, tenant: str) -> Share:
        """The share of a tenant without those below it, to be compared with theirs: nothing where there are none."""
        children = self._children_of(tenant)
        if not children:
            return Share(has_no_weight=False, share=0, tenant=tenant)
        share = 0
        for gpu_type, total_milli in self._totals:
            both = 0
            for sign, names in ((1, (tenant,)), (-1, children)):
                for name in names:
                    held_milli = self._usage.get((name, gpu_type), 0)
                    both += sign * (held_milli * self._held_ms + self._used(name, gpu_type))
            share = max(share, self._relative(max(0, both), total_milli, 1))
        return Share(has_no_weight=False, share=share, tenant=tenant)

    def line(self, tenant: str) -> list[str]:
        """The tenant and those above it, from the root down."""
        found, above = [tenant], self._parent(tenant)
        while above is not None and above not in found:
            found.append(above)
            above = self._parent(above)
        return found[::-1]

    def weight(self, tenant: str, gpu_type: str) -> int:
        """What the tenant's share of this GPU type is divided by."""
        quota = self._quotas.get((tenant, gpu_type))
        return 1 if quota is None else quota.weight

    def lately_milli(self, tenant: str, gpu_type: str) -> int:
        """What it held of late on the average, with all below it."""
        return self._used(tenant, gpu_type) // self._held_ms

    def _relative(self, both: int, total_milli: int, weight: int) -> int:
        return both * SHARE_ONE // (total_milli * self._held_ms * self._halves * (weight or 1))

    def _used(self, tenant: str, gpu_type: str) -> int:
        account = (tenant, gpu_type)
        known = self._lately.get(account)
        if known is None:
            known = self._lately[account] = self._fair.of(account, self._now_ms)
        return known

    def _parent(self, tenant: str) -> str | None:
        for gpu_type, _ in self._totals:
            quota = self._quotas.get((tenant, gpu_type))
            if quota is not None and quota.parent is not None:
                return quota.parent
        return None

    def _children_of(self, tenant: str) -> list[str]:
        if self._children is None:
            self._children = {}
            for name in dict.fromkeys(name for name, _ in self._quotas):
                parent = self._parent(name)
                if parent is not None:
                    self._children.setdefault(parent, []).append(name)
        return self._children.get(tenant, [])


def totals_of(state: CellState) -> tuple[tuple[str, int], ...]:
    """The healthy milli-GPUs of each type, of nodes that are not lost. A pool may have nodes of several types."""
    types = {gpu_type for pool in state.pools.values() for gpu_type in gpu_types_of(state, pool)}
    return tuple((gpu_type, milli) for gpu_type in sorted(types) if (milli := all_milli(state, gpu_type)))
