"""The figures of one simulated trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction

from fallow.services.metrics.policy.kant.waiting import percentile
from fallow.services.metrics.policy.run_time_errors import RIGHT
from fallow.shared.events.operations import EstimatorKind
from fallow.simulator.trace.measures import Measures


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """How the jobs fared. Times in milliseconds; waits are from submission to the first start, completion times from
    submission to the good end, both without carried jobs. Ratios are means over time from 0 to the makespan, which is
    the time of the last decision that changed something; those that end in `_loaded` only to the last submission, so
    that the hours or weeks in which the last jobs run out do not count. An error of an estimator is the factor by which
    a run took longer or shorter than it was expected to when it started; None where it expected nothing.
    """

    submitted: int
    completed: int
    failed: int
    rejected: int
    unfinished: int
    gar: float | None
    sor: float | None
    gfr: float | None
    gar_loaded: float | None
    sor_loaded: float | None
    gfr_loaded: float | None
    wait_ms_mean: float | None
    wait_ms_p50: int | None
    wait_ms_p95: int | None
    wait_ms_p99: int | None
    wait_ms_longest: int | None
    jct_ms_mean: float | None
    jct_ms_p50: int | None
    jct_ms_p95: int | None
    jct_ms_p99: int | None
    jct_ms_longest: int | None
    preemptions: int
    makespan_ms: int
    decisions: int
    declared_error_p50: float | None
    declared_error_p90: float | None
    learned_error_p50: float | None
    learned_error_p90: float | None

    def as_json(self) -> dict[str, object]:
        """By their names."""
        return asdict(self)


def figures_of(measures: Measures, makespan_ms: int, decisions: int) -> TraceFigures:
    """What was measured, when all is over."""
    told, summary, completion = measures.summary.result(), measures.summary, measures.completion
    waits, times = summary.waiting.ordered(), completion.times.ordered()
    gar, sor, gfr = measures.loaded
    return TraceFigures(
        submitted=told.submitted,
        completed=told.completed,
        failed=told.failed,
        rejected=told.rejected,
        unfinished=told.unfinished,
        gar=_ratio(told.gar_mean),
        sor=_ratio(told.sor),
        gfr=_ratio(told.gfr_mean),
        gar_loaded=_ratio(gar),
        sor_loaded=_ratio(sor),
        gfr_loaded=_ratio(gfr),
        wait_ms_mean=_mean(told.wait_ms_mean),
        wait_ms_p50=percentile(waits, 50),
        wait_ms_p95=percentile(waits, 95),
        wait_ms_p99=percentile(waits, 99),
        wait_ms_longest=percentile(waits, 100),
        jct_ms_mean=_mean(completion.times.mean_ms()),
        jct_ms_p50=percentile(times, 50),
        jct_ms_p95=percentile(times, 95),
        jct_ms_p99=percentile(times, 99),
        jct_ms_longest=percentile(times, 100),
        preemptions=sum(job.preemptions for job in measures.books.jobs.values()),
        makespan_ms=makespan_ms,
        decisions=decisions,
        declared_error_p50=_error(measures, EstimatorKind.DECLARED, 50),
        declared_error_p90=_error(measures, EstimatorKind.DECLARED, 90),
        learned_error_p50=_error(measures, EstimatorKind.LEARNED, 50),
        learned_error_p90=_error(measures, EstimatorKind.LEARNED, 90),
    )


def _error(measures: Measures, kind: EstimatorKind, percent: int) -> float | None:
    """By which factor an estimator was wrong, at this percentile."""
    errors = measures.expected.errors.get(kind)
    factor = None if errors is None else errors.percentile(percent)
    return None if factor is None else factor / RIGHT


def _ratio(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 6)


def _mean(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 3)
