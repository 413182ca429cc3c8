"""The metrics of the owned cells as Prometheus reads them: computed when they are asked for, with bounded labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from fallow.services.metrics.policy.figures import Figures
from fallow.services.metrics.policy.kant.communication import UNSTRETCHED
from fallow.services.metrics.policy.kant.waiting import BUCKETS_MS, SECOND_MS, Waits, percentile
from fallow.services.metrics.policy.run_time_errors import FACTORS_MILLI, RIGHT
from fallow.services.metrics.policy.tenant_labels import TenantLabels
from fallow.services.metrics.policy.tenant_sums import TenantSums, tenant_sums
from fallow.services.metrics.policy.time_weighted import PoolRatios, TimeWeightedRatio
from fallow.services.metrics.policy.watch import INVARIANTS
from fallow.services.metrics.service import MetricsService

CELL = "cell"
WHOLE_CELL = "_all"
"""The pool label of a figure of all pools together: no name of a pool."""


class Watched(NamedTuple):
    """One owned cell: its figures, and the cell time up to which they are asked for."""

    service: MetricsService
    until_ms: int


class CellCollector(Collector):
    """`cells` tells the owned cells at the moment of asking; `named` are all cells, whichever process owns them."""

    def __init__(
        self, cells: Callable[[], Mapping[str, Watched]], tenants_named: int, named: Iterable[str] = ()
    ) -> None:
        self._cells, self._named = cells, tuple(named)
        self._labels = TenantLabels(tenants_named)

    def collect(self) -> Iterator[Metric]:
        """All figures now."""
        cells = self._cells()
        yield from self._ratios(cells, "gar", "Allocated of schedulable GPUs", lambda figures: figures.gar)
        yield from self._ratios(cells, "gfr", "Fragmented of usable nodes", lambda figures: figures.gfr)
        yield _occupancy(cells)
        for field in ("size_class", "pool"):
            yield from _waits(cells, field)
            yield from _stretches(cells, field)
        yield _run_time_errors(cells)
        yield from self._tenants(cells)
        yield from self._queue(cells)
        yield from _counts(cells)
        yield _violations(cells, self._named)

    def _ratios(
        self,
        cells: Mapping[str, Watched],
        name: str,
        text: str,
        ratios_of: Callable[[Figures], PoolRatios],
    ) -> Iterator[Metric]:
        now = GaugeMetricFamily(f"fallow_{name}_ratio", f"{text}, now", labels=[CELL, "pool"])
        mean = GaugeMetricFamily(f"fallow_{name}_mean_ratio", f"{text}, mean over time", labels=[CELL, "pool"])
        for cell, (service, until_ms) in cells.items():
            ratios = ratios_of(service.figures)
            for pool, ratio in {**ratios.pools, WHOLE_CELL: ratios.cell}.items():
                _add_ratio(now, mean, [cell, pool], ratio, until_ms)
        yield now
        yield mean

    def _queue(self, cells: Mapping[str, Watched]) -> Iterator[Metric]:
        depth = GaugeMetricFamily("fallow_waiting_jobs", "Jobs that wait", labels=[CELL, "tenant"])
        age = GaugeMetricFamily("fallow_waiting_oldest_seconds", "Wait of the oldest, in cell time", labels=[CELL])
        for cell, (service, until_ms) in cells.items():
            by_label: dict[str, int] = {}
            for tenant, count in service.figures.queue.by_tenant.items():
                label = self._labels.label(tenant)
                by_label[label] = by_label.get(label, 0) + count
            for label, count in by_label.items():
                depth.add_metric([cell, label], count)
            age.add_metric([cell], service.figures.queue.oldest_ms(until_ms) / SECOND_MS)
        yield depth
        yield age

    def _tenants(self, cells: Mapping[str, Watched]) -> Iterator[Metric]:
        """Sums alone, so that the ones that share a label can be added."""
        labels = [CELL, "tenant"]
        gar = GaugeMetricFamily("fallow_tenant_gar_ratio", "A tenant's of the schedulable GPUs, now", labels=labels)
        sor = GaugeMetricFamily("fallow_tenant_sor_ratio", "A tenant's of the available GPU time", labels=labels)
        wait = SummaryMetricFamily("fallow_tenant_wait_seconds", "Submission to first start", labels=labels)
        jtted = SummaryMetricFamily("fallow_tenant_jtted_ratio", "Estimated stretch of training", labels=labels)
        for cell, (service, until_ms) in cells.items():
            figures = service.figures
            for label, found in _summed(self._labels, tenant_sums(figures, until_ms)).items():
                gar.add_metric([cell, label], float(found.gar))
                sor.add_metric([cell, label], float(found.sor))
                wait.add_metric([cell, label], found.waits, found.wait_ms / SECOND_MS)
                jtted.add_metric([cell, label], found.starts, found.stretch_milli / UNSTRETCHED)
        yield from (gar, sor, wait, jtted)


def _summed(labels: TenantLabels, sums: Mapping[str, TenantSums]) -> dict[str, TenantSums]:
    by_label: dict[str, TenantSums] = {}
    for tenant, found in sums.items():
        label = labels.label(tenant)
        by_label[label] = by_label[label].plus(found) if label in by_label else found
    return by_label


def _add_ratio(
    now: GaugeMetricFamily, mean: GaugeMetricFamily, labels: list[str], ratio: TimeWeightedRatio, until_ms: int
) -> None:
    _add(now, labels, ratio.now())
    _add(mean, labels, ratio.mean(until_ms))


def _add(family: GaugeMetricFamily, labels: list[str], value: Fraction | int | None) -> None:
    if value is not None:
        family.add_metric(labels, float(value))


def _occupancy(cells: Mapping[str, Watched]) -> Metric:
    family = GaugeMetricFamily("fallow_sor_ratio", "Held of available GPU time (SOR)", labels=[CELL, "pool"])
    for cell, (service, until_ms) in cells.items():
        sor = service.figures.sor
        for pool in sorted(service.figures.gar.pools):
            _add(family, [cell, pool], sor.value(until_ms, pool=pool))
        _add(family, [cell, WHOLE_CELL], sor.value(until_ms))
    return family


def _waits(cells: Mapping[str, Watched], field: str) -> Iterator[Metric]:
    """By `size_class`; by `pool` or `tenant` under names of their own, since a job is in all three."""
    prefix, labels = "fallow" if field == "size_class" else f"fallow_{field}", [CELL, field]
    waits = HistogramMetricFamily(f"{prefix}_wait_seconds", "Submission to first start, in cell time", labels=labels)
    high = GaugeMetricFamily(
        f"{prefix}_wait_percentile_seconds", "The same, of the newest jobs", labels=[*labels, "percentile"]
    )
    for cell, (service, _) in cells.items():
        waiting = service.figures.waiting
        for name, found in (waiting.classes if field == "size_class" else waiting.merged(field)).items():
            waits.add_metric([cell, name], buckets=_buckets(found), sum_value=found.sum_ms / SECOND_MS)
            ordered = found.ordered()
            for percent in (50, 99):
                wait_ms = percentile(ordered, percent)
                _add(high, [cell, name, str(percent)], None if wait_ms is None else Fraction(wait_ms, SECOND_MS))
    yield waits
    yield high


def _stretches(cells: Mapping[str, Watched], field: str) -> Iterator[Metric]:
    prefix, labels = "fallow_jtted" if field == "size_class" else f"fallow_{field}_jtted", [CELL, field, "model"]
    text = "Estimated duration of training, in parts of that in the best place (JTTED)"
    mean = GaugeMetricFamily(f"{prefix}_mean_ratio", f"{text}: mean of all starts", labels=labels)
    high = GaugeMetricFamily(f"{prefix}_percentile_ratio", text, labels=[*labels, "percentile"])
    for cell, (service, _) in cells.items():
        jtted = service.figures.jtted
        for name, found in sorted(jtted.merged(field).items()):
            _add(mean, [cell, name, jtted.model.name], Fraction(found.sum_milli, found.count * UNSTRETCHED))
            for percent in (50, 99):
                stretch = found.percentile(percent)
                _add(high, [cell, name, jtted.model.name, str(percent)], Fraction(stretch or 0, UNSTRETCHED))
    yield mean
    yield high


def _run_time_errors(cells: Mapping[str, Watched]) -> Metric:
    text = "By which factor runs took longer or shorter than expected when they started"
    family = HistogramMetricFamily("fallow_run_time_error_factor", text, labels=[CELL, "estimator"])
    bounds = [str(bound / RIGHT) for bound in FACTORS_MILLI]
    for cell, (service, _) in cells.items():
        for kind, errors in sorted(service.figures.expected.errors.items()):
            family.add_metric([cell, kind.value], _cumulated(bounds, errors.buckets), errors.sum_milli / RIGHT)
    return family


def _buckets(waits: Waits) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket what is in the ones before, too."""
    return _cumulated([str(float(bound // SECOND_MS)) for bound in BUCKETS_MS], waits.buckets)


def _cumulated(bounds: Sequence[str], buckets: Sequence[int]) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip((*bounds, "+Inf"), buckets, strict=True):
        total += count
        found.append((bound, float(total)))
    return found


def _counts(cells: Mapping[str, Watched]) -> Iterator[Metric]:
    decisions = CounterMetricFamily("fallow_decisions", "Decisions folded", labels=[CELL])
    effects = CounterMetricFamily("fallow_effects", "Effects of these decisions", labels=[CELL, "kind"])
    for cell, (service, _) in cells.items():
        decisions.add_metric([cell], service.decisions)
        for kind, count in sorted(service.effects.items()):
            effects.add_metric([cell, kind], count)
    yield decisions
    yield effects


def _violations(cells: Mapping[str, Watched], named: Iterable[str]) -> Metric:
    """Every invariant of every cell, from 0 on and before a cell is read: an alert on it must never lack its figure."""
    text, labels = "Offences found on the live log", [CELL, "invariant"]
    family = CounterMetricFamily("fallow_invariant_violations", text, labels=labels)
    for cell in dict.fromkeys((*named, *cells)):
        for invariant in INVARIANTS:
            found = cells[cell].service.watch.violations(invariant) if cell in cells else 0
            family.add_metric([cell, invariant], found)
    return family
