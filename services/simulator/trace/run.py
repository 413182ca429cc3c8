"""A trace of jobs on the services of one cell, in virtual time, and its figures.

Arrivals are handed over one by one, each settled before the next, and at equal times after everything that is due: the
same steps as those of a stepped replay, so it comes to the same starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from services.metrics.policy.completion import CompletionTimes
from services.metrics.policy.summary import RunSummary
from services.metrics.policy.waiting import percentile
from services.simulator.trace.books import Books
from services.simulator.trace.cell import VirtualCell
from shared.cluster.config import CellFile
from shared.events.submissions import SubmitJob
from shared.events.values import NodeSpec

FEW = 16
"""Above so many waiting jobs placement goes by queueing's windows: a walk of all at every step costs more."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and when it comes."""

    at_ms: int
    command: SubmitJob


@dataclass(frozen=True, slots=True)
class TraceFigures:
    """How the jobs fared. Times in milliseconds; waits are from submission to the first start, completion times from
    submission to the good end, both without carried jobs. Ratios are means over time from 0 to the makespan, which is
    the time of the last decision.
    """

    submitted: int
    completed: int
    failed: int
    rejected: int
    unfinished: int
    gar: float | None
    sor: float | None
    gfr: float | None
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

    def as_json(self) -> dict[str, object]:
        """By their names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TraceRun:
    """What came of it: the figures, and the books that prove them."""

    figures: TraceFigures
    books: Books


def run_trace(
    file: CellFile, nodes: Iterable[NodeSpec], arrivals: Sequence[Arrival], carried: Collection[str] = frozenset()
) -> TraceRun:
    """Let all arrivals come, in their order, and everything end that ends. `carried` are jobs that ran before."""
    books, summary, completion = Books(), RunSummary(carried), CompletionTimes(carried)
    cell = VirtualCell(file, nodes, (books.follow, summary.take, completion.take), few=FEW)
    cell.begin()
    for arrival in arrivals:
        cell.advance(arrival.at_ms)
        answer = cell.submit(arrival.command)
        job = arrival.command.job.id
        books.submitted(arrival.command, answer, is_carried=job in carried)
        if books.jobs[job].state == "rejected":
            summary.turn_away(job)
        cell.settle()
    cell.advance(None)
    return TraceRun(_figures(summary, completion, books, cell), books)


def _figures(summary: RunSummary, completion: CompletionTimes, books: Books, cell: VirtualCell) -> TraceFigures:
    told = summary.result()
    waits, times = summary.waiting.ordered(), completion.times.ordered()
    return TraceFigures(
        submitted=told.submitted,
        completed=told.completed,
        failed=told.failed,
        rejected=told.rejected,
        unfinished=told.unfinished,
        gar=_ratio(told.gar_mean),
        sor=_ratio(told.sor),
        gfr=_ratio(told.gfr_mean),
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
        preemptions=sum(job.preemptions for job in books.jobs.values()),
        makespan_ms=cell.state.at_ms,
        decisions=cell.decisions,
    )


def _ratio(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 6)


def _mean(value: Fraction | None) -> float | None:
    return None if value is None else round(float(value), 3)
