"""GAR, the GPU allocation ratio (Kant, section 4): allocated GPUs / schedulable GPUs, at a time and on average over
time.

Schedulable are the healthy GPUs of nodes that are not lost. A cordoned node's GPUs count: work still holds them.
"""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.metrics.policy.groups import as_it_is
from fallow.services.metrics.policy.time_weighted import PoolRatios, TimeWeightedRatio
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision


class Gar(PoolRatios):
    """GAR of the whole cell and of each of its pools (a lent node counts in the pool in which it works)."""

    def begin(self, state: CellState, at_ms: int | None = None) -> None:
        """Take in a state as it is at `at_ms` (None: its own time), at the beginning or later."""
        self._measure(state, state.at_ms if at_ms is None else at_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        self._measure(state, decision.at_ms)

    def _measure(self, state: CellState, at_ms: int) -> None:
        self.set(at_ms, [(name, pool.allocated_milli, pool.gpus_milli) for name, pool in state.pools.items()])


class TenantGar:
    """What each tenant's own jobs have of the cell's schedulable GPUs: of all tenants they add up to its GAR."""

    def __init__(self, named: Callable[[str], str] = as_it_is) -> None:
        """`named` says under which name a tenant's share is kept."""
        self._named = named
        self.tenants: dict[str, TimeWeightedRatio] = {}
        self._nobody = TimeWeightedRatio()

    def begin(self, state: CellState, at_ms: int | None = None) -> None:
        """Take in a state as it is at `at_ms` (None: its own time), at the beginning or later."""
        now_ms = state.at_ms if at_ms is None else at_ms
        whole, own = sum(pool.gpus_milli for pool in state.pools.values()), dict[str, int]()
        for tenant, milli in own_use(state).items():
            name = self._named(tenant)
            own[name] = own.get(name, 0) + milli
        for tenant in own:
            if tenant not in self.tenants:
                self.tenants[tenant] = self._nobody.twin()
        for tenant, ratio in self.tenants.items():
            ratio.set(now_ms, own.get(tenant, 0), whole)
        self._nobody.set(now_ms, 0, whole)


def own_use(state: CellState) -> dict[str, int]:
    """Milli-GPUs in use by each tenant's own jobs: the accounts without what those below them brought in."""
    own: dict[str, int] = {}
    for (tenant, _), milli in state.usage.items():
        own[tenant] = own.get(tenant, 0) + milli
    for account, quota in state.quotas.items():
        if quota.parent is not None and account in state.usage:
            own[quota.parent] = own.get(quota.parent, 0) - state.usage[account]
    return {tenant: milli for tenant, milli in sorted(own.items()) if milli}
