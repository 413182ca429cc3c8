"""The figures of one run, as docs/checks.md names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fallow.bench.aryl.world.run import Run, TraceRun
from fallow.bench.aryl.world.sides import GPUS
from fallow.bench.aryl.world.world import Cluster, Outcome, TickRow
from fallow.replay.trace import MS_PER_S

HOUR_MS = 3_600_000
SHORT_MS = 10_000
"""A job shorter than this counts as this long in its slowdown, as is usual (bounded slowdown)."""

Row = dict[str, Any]


def row_of(outcome: Outcome, cluster: Cluster) -> Row:
    """What came of a run, less what names it. Jobs that were carried over count in the use of GPUs only."""
    runs = [run for run in outcome.runs if run.job.is_counted]
    queues, jcts, waits = _queues(runs), _jcts(runs), [run.waited_ms for run in runs]
    preemptions = sum(run.preemptions for run in runs)
    return {
        **_times(queues, jcts, waits, [run.job for run in runs]),
        "preempted_pct": round(100 * preemptions / len(runs), 4),
        "gpu_h_lost": round(sum(run.lost_gpu_ms for run in runs) / HOUR_MS, 1),
        **_use(outcome.ticks, cluster),
    }


def bound_row(jobs: Sequence[TraceRun], *, largest: bool) -> Row:
    """Every job starts at its submission with its base workers, or with as many as it can have. No scheduler does
    better, unless it runs jobs with fewer than that.
    """
    counted = [job for job in jobs if job.is_counted]
    runs_ms = [_run_ms(job) if largest else job.base_ms for job in counted]
    none = dict.fromkeys(("train_use", "overall_use", "on_loan_use", "collateral"))
    zeros = [0] * len(counted)
    return {**_times(zeros, runs_ms, zeros, counted), "preempted_pct": 0.0, "gpu_h_lost": 0.0, **none}


def bound_share(row: Row, fifo: Row, bound: Row) -> float | None:
    """The share of the way from FIFO to the bound, by the mean JCT."""
    way = fifo["jct_s_mean"] - bound["jct_s_mean"]
    return round((fifo["jct_s_mean"] - row["jct_s_mean"]) / way, 4) if way > 0 else None


def _run_ms(job: TraceRun) -> int:
    return -(-job.base_ms * job.workers // (job.workers + job.flexible_max))


def _queues(runs: Sequence[Run]) -> list[int]:
    return [run.start_ms - run.job.submit_ms for run in runs if run.start_ms is not None]


def _jcts(runs: Sequence[Run]) -> list[int]:
    return [run.end_ms - run.job.submit_ms for run in runs if run.end_ms is not None]


def _times(queues: Sequence[int], jcts: Sequence[int], waits: Sequence[int], jobs: Sequence[TraceRun]) -> Row:
    slowdowns = [max(1.0, jct / max(job.base_ms, SHORT_MS)) for jct, job in zip(jcts, jobs, strict=True)]
    return {
        "queue_s_mean": _mean_s(queues),
        "queue_s_p50": _rank_s(queues, 50),
        "queue_s_p95": _rank_s(queues, 95),
        "total_wait_s_mean": _mean_s(waits),
        "longest_wait_h": round(max(waits) / HOUR_MS, 2),
        "jct_s_mean": _mean_s(jcts),
        "jct_s_p50": _rank_s(jcts, 50),
        "jct_s_p95": _rank_s(jcts, 95),
        "slowdown_mean": round(sum(slowdowns) / len(slowdowns), 4),
    }


def _mean_s(values: Sequence[int]) -> float:
    return round(sum(values) / len(values) / MS_PER_S, 3)


def _rank_s(values: Sequence[int], pct: int) -> float:
    """The nearest rank: the smallest value that so many per cent do not exceed."""
    return sorted(values)[-(-len(values) * pct // 100) - 1] / MS_PER_S


def _use(ticks: Sequence[TickRow], cluster: Cluster) -> Row:
    """Of the period of the demand: later ticks are of jobs that are left."""
    period_ms = cluster.demand.period_ms
    inside = [tick for tick in ticks if tick.at_ms < period_ms]
    last = next((tick for tick in ticks if tick.at_ms >= period_ms), ticks[-1])
    inference_gpus = cluster.inference_servers * GPUS
    busy = last.training_gpu_ms + last.lent_gpu_ms + round(cluster.demand.busy_mean() * inference_gpus * period_ms)
    lent_gpus = GPUS * sum(tick.lent for tick in inside)
    wanted_gpus = GPUS * sum(tick.wanted for tick in inside)
    return {
        "train_use": round(last.training_gpu_ms / (cluster.training_gpus * period_ms), 4),
        "overall_use": round(busy / ((cluster.training_gpus + inference_gpus) * period_ms), 4),
        "on_loan_use": round(sum(tick.lent_busy_gpus for tick in inside) / lent_gpus, 4) if lent_gpus else None,
        "collateral": round(sum(tick.surplus_gpus for tick in inside) / wanted_gpus, 4) if wanted_gpus else None,
    }
