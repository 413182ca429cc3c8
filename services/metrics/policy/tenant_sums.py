"""A tenant's figures as sums and shares, which may be added up over tenants."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from fallow.services.metrics.policy.figures import Figures
from fallow.services.metrics.policy.kant.jtted import Stretches
from fallow.services.metrics.policy.kant.waiting import Waits
from fallow.services.metrics.policy.time_weighted import TimeWeightedRatio


class TenantSums(NamedTuple):
    """GAR and SOR as shares of the whole cell; waits in ms and stretches in thousandths, with how many there are."""

    gar: Fraction
    sor: Fraction
    waits: int
    wait_ms: int
    starts: int
    stretch_milli: int

    def plus(self, other: TenantSums) -> TenantSums:
        """Both together."""
        return TenantSums(
            self.gar + other.gar,
            self.sor + other.sor,
            self.waits + other.waits,
            self.wait_ms + other.wait_ms,
            self.starts + other.starts,
            self.stretch_milli + other.stretch_milli,
        )


def tenant_sums(figures: Figures, until_ms: int) -> dict[str, TenantSums]:
    """The sums of each tenant that ever started a job, by name."""
    waits, stretches = figures.waiting.merged("tenant"), figures.jtted.merged("tenant")
    shares = figures.tenant_gar.tenants
    found = {}
    for name in figures.sor.tenants:
        waited, stretched = waits.get(name, Waits()), stretches.get(name, Stretches())
        found[name] = TenantSums(
            gar=shares.get(name, TimeWeightedRatio()).now() or Fraction(0),
            sor=figures.sor.value(until_ms, tenant=name) or Fraction(0),
            waits=waited.count,
            wait_ms=waited.sum_ms,
            starts=stretched.count,
            stretch_milli=stretched.sum_milli,
        )
    return found
