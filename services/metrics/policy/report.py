"""The figures as one object of plain values: what `fallow metrics --json` prints and what a simulator writes down.

Times are milliseconds of cell time, ratios are parts of 1; None where there was nothing to measure.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fallow.services.metrics.policy.figures import Figures
from fallow.services.metrics.policy.kant.communication import UNSTRETCHED
from fallow.services.metrics.policy.kant.jtted import Stretches
from fallow.services.metrics.policy.kant.waiting import Waits, percentile
from fallow.services.metrics.policy.run_time_errors import RunTimeErrors
from fallow.services.metrics.policy.size_classes import SIZE_CLASSES
from fallow.services.metrics.policy.time_weighted import TimeWeightedRatio

PERCENTS = (50, 95, 99)


def report_of(figures: Figures, until_ms: int) -> dict[str, Any]:
    """Everything, up to `until_ms`."""
    waits, stretches = figures.waiting.merged("size_class"), figures.jtted.merged("size_class")
    return {
        "from_ms": figures.since_ms,
        "until_ms": until_ms,
        "decisions": figures.decisions,
        "waiting_jobs": figures.queue.count,
        "waiting_oldest_ms": figures.queue.oldest_ms(until_ms),
        **_ratio("gar", figures.gar.cell, until_ms),
        "sor": _float(figures.sor.value(until_ms)),
        **_ratio("gfr", figures.gfr.cell, until_ms),
        "jtted_model": figures.jtted.model.name,
        "jwtd": {name: jwtd(waits[name]) for name in SIZE_CLASSES if name in waits},
        "jtted": {name: jtted(stretches[name]) for name in SIZE_CLASSES if name in stretches},
        "run_time_errors": {
            kind.value: run_time_errors(found) for kind, found in sorted(figures.expected.errors.items())
        },
        "pools": _pools(figures, until_ms),
        "tenants": _tenants(figures, until_ms),
    }


def _pools(figures: Figures, until_ms: int) -> dict[str, Any]:
    waits, stretches = figures.waiting.merged("pool"), figures.jtted.merged("pool")
    gar, gfr = figures.gar.pools, figures.gfr.pools
    return {
        name: {
            **_ratio("gar", gar[name], until_ms),
            "sor": _float(figures.sor.value(until_ms, pool=name)),
            **_ratio("gfr", gfr[name], until_ms),
            "jwtd": jwtd(waits.get(name, Waits())),
            "jtted": jtted(stretches.get(name, Stretches())),
        }
        for name in sorted(gar)
    }


def _tenants(figures: Figures, until_ms: int) -> dict[str, Any]:
    waits, stretches = figures.waiting.merged("tenant"), figures.jtted.merged("tenant")
    shares, waiting = figures.tenant_gar.tenants, figures.queue.by_tenant
    names = dict.fromkeys((*shares, *figures.sor.tenants, *waits, *waiting))
    return {
        name: {
            **_ratio("gar", shares.get(name, TimeWeightedRatio()), until_ms),
            "sor": _float(figures.sor.value(until_ms, tenant=name)),
            "waiting_jobs": waiting.get(name, 0),
            "jwtd": jwtd(waits.get(name, Waits())),
            "jtted": jtted(stretches.get(name, Stretches())),
        }
        for name in sorted(names)
    }


def jwtd(waits: Waits) -> dict[str, Any]:
    """A distribution of waits: how many, their mean, percentiles and the longest."""
    ordered = waits.ordered()
    return {
        "count": waits.count,
        "mean_ms": _float(waits.mean_ms()),
        **{f"p{percent}_ms": percentile(ordered, percent) for percent in PERCENTS},
        "longest_ms": ordered[-1] if ordered else None,
    }


def run_time_errors(found: RunTimeErrors) -> dict[str, Any]:
    """By which factor an estimator was wrong: of how many jobs, its percentiles, and how many of them took longer than
    was expected.
    """
    return {
        "count": found.count,
        "too_short": found.too_short,
        **{f"p{percent}": _thousandths(found.percentile(percent)) for percent in PERCENTS},
    }


def jtted(stretches: Stretches) -> dict[str, Any]:
    """A distribution of stretches: how many starts, their mean, percentiles and the longest; and the sum of the run
    times that submitters told, and what is estimated of it.
    """
    count = stretches.count
    return {
        "count": count,
        "mean": _thousandths(stretches.sum_milli / count) if count else None,
        **{f"p{percent}": _thousandths(stretches.percentile(percent)) for percent in PERCENTS},
        "longest": _thousandths(max(stretches.counts, default=None)),
        "told_ms": stretches.told_ms,
        "estimated_ms": stretches.estimated_ms,
    }


def _ratio(name: str, ratio: TimeWeightedRatio, until_ms: int) -> dict[str, Any]:
    return {f"{name}_now": _float(ratio.now()), f"{name}_mean": _float(ratio.mean(until_ms))}


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _thousandths(value: float | None) -> float | None:
    return None if value is None else value / UNSTRETCHED
