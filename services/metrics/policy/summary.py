"""What came of all jobs of one log: the figures that a demo or a replay ends with.

Counts are of job ids. They add up: submitted = completed + failed + cancelled + rejected + unfinished.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from fallow.services.metrics.policy.kant.gar import Gar
from fallow.services.metrics.policy.kant.gfr import Gfr
from fallow.services.metrics.policy.kant.sor import Sor
from fallow.services.metrics.policy.kant.waiting import WaitingTimes, percentile
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision

SUBMIT = "submit"
"""How `JobRefused` calls the request for a new job."""


@dataclass(slots=True, frozen=True)
class Summary:
    """The figures. Waits in milliseconds of cell time; ratios exact; None where there was nothing to measure."""

    submitted: int
    completed: int
    failed: int
    cancelled: int
    rejected: int
    unfinished: int
    wait_ms_mean: Fraction | None
    wait_ms_p50: int | None
    wait_ms_p99: int | None
    gar_mean: Fraction | None
    gfr_mean: Fraction | None
    sor: Fraction | None
    gar_mean_by_pool: dict[str, Fraction | None]
    gfr_mean_by_pool: dict[str, Fraction | None]
    versions: int

    def as_json(self) -> dict[str, object]:
        """The summary with ratios and means as floats, for printing."""
        return {
            "submitted": self.submitted,
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "rejected": self.rejected,
            "unfinished": self.unfinished,
            "wait_ms_mean": _float(self.wait_ms_mean),
            "wait_ms_p50": self.wait_ms_p50,
            "wait_ms_p99": self.wait_ms_p99,
            "gar_mean": _float(self.gar_mean),
            "gfr_mean": _float(self.gfr_mean),
            "sor": _float(self.sor),
            "gar_mean_by_pool": {pool: _float(mean) for pool, mean in self.gar_mean_by_pool.items()},
            "gfr_mean_by_pool": {pool: _float(mean) for pool, mean in self.gfr_mean_by_pool.items()},
            "versions": self.versions,
        }


class RunSummary:
    """Fed with every decision of a log from its beginning, and with the ids that never came to the log.

    `excluded` are jobs whose waits do not count: those that a replay carries over.
    """

    def __init__(self, excluded: Collection[str] = frozenset()) -> None:
        self.gar, self.gfr, self.sor = Gar(), Gfr(), Sor()
        self.waiting = WaitingTimes(excluded)
        self._turned_away: dict[str, None] = {}
        self._enqueued = self._completed = self._failed = self._cancelled = 0
        self._at_ms = self._version = 0

    def turn_away(self, job_id: str) -> None:
        """Admission rejected this id, or could not even read what was meant."""
        self._turned_away[job_id] = None

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        for effect in decision.effects:
            match effect:
                case e.JobEnqueued():
                    self._enqueued += 1
                    self._turned_away.pop(effect.spec.id, None)
                case e.JobFinished():
                    self._completed += 1
                case e.JobFailed():
                    self._failed += 1
                case e.JobCancelled():
                    self._cancelled += 1
                case e.JobRefused(request=request) if request == SUBMIT:
                    self._refuse(state, effect.job)
        for accumulator in (self.gar, self.gfr, self.sor, self.waiting):
            accumulator.take(state, decision)
        self._at_ms, self._version = decision.at_ms, decision.version

    def _refuse(self, state: CellState, job_id: str) -> None:
        """An id that is or was a job is counted as that job."""
        if job_id not in state.jobs and job_id not in state.finished:
            self._turned_away[job_id] = None

    def result(self, until_ms: int | None = None) -> Summary:
        """The figures up to `until_ms`, by default the time of the last decision."""
        end_ms = self._at_ms if until_ms is None else until_ms
        ordered = self.waiting.ordered()
        rejected = len(self._turned_away)
        return Summary(
            submitted=self._enqueued + rejected,
            completed=self._completed,
            failed=self._failed,
            cancelled=self._cancelled,
            rejected=rejected,
            unfinished=self._enqueued - self._completed - self._failed - self._cancelled,
            wait_ms_mean=self.waiting.mean_ms(),
            wait_ms_p50=percentile(ordered, 50),
            wait_ms_p99=percentile(ordered, 99),
            gar_mean=self.gar.cell.mean(end_ms),
            gfr_mean=self.gfr.cell.mean(end_ms),
            sor=self.sor.value(end_ms),
            gar_mean_by_pool={name: ratio.mean(end_ms) for name, ratio in sorted(self.gar.pools.items())},
            gfr_mean_by_pool={name: ratio.mean(end_ms) for name, ratio in sorted(self.gfr.pools.items())},
            versions=self._version,
        )


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
