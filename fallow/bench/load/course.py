"""What a load did to the cell, read from its log afterwards: GPUs in use and jobs waiting over the time at which the
records came, and what became of each job.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from fallow.bench.load.arrivals import NEVER, Arrivals, Told
from fallow.bench.load.job_mix import number_of
from fallow.cli.log.read_back import records_of
from fallow.replay.workload import CELL
from fallow.shared.cluster.fold.fold import fold as fold_record
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.log.port import Log
from fallow.shared.log.reading import log_record


@dataclass(slots=True)
class Course:
    """After each record of the log: when it came (monotonic seconds), the milli-GPUs held and the jobs waiting."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    held_milli: array[int] = field(default_factory=lambda: array("q"))
    waiting: array[int] = field(default_factory=lambda: array("q"))

    def note(self, at_s: float, held_milli: int, waiting: int) -> None:
        """One record more."""
        self.at_s.append(at_s)
        self.held_milli.append(held_milli)
        self.waiting.append(waiting)

    def held_mean_milli(self, begin_s: float, end_s: float) -> float:
        """Milli-GPUs held between two moments, in the mean over time."""
        return self._mean(self.held_milli, begin_s, end_s)

    def waiting_mean(self, begin_s: float, end_s: float) -> float:
        """Jobs waiting, likewise."""
        return self._mean(self.waiting, begin_s, end_s)

    def waiting_least(self, begin_s: float, end_s: float) -> int:
        """The fewest jobs that waited at any moment between these."""
        first, last = self._at(begin_s), self._at(end_s)
        return min(self.waiting[max(0, first) : last + 1], default=0)

    def waiting_at(self, moment_s: float) -> int:
        """Jobs waiting at a moment."""
        at = self._at(moment_s)
        return self.waiting[at] if at >= 0 else 0

    def _at(self, moment_s: float) -> int:
        """The last record that had come by then; -1 where none had."""
        return bisect_right(self.at_s, moment_s) - 1

    def _mean(self, values: array[int], begin_s: float, end_s: float) -> float:
        """A value holds from its record to the next one, and is 0 before the first."""
        at, now_s, total = self._at(begin_s), begin_s, 0.0
        while now_s < end_s:
            next_s = min(end_s, self.at_s[at + 1]) if at + 1 < len(self.at_s) else end_s
            total += (values[at] if at >= 0 else 0) * (next_s - now_s)
            at, now_s = at + 1, next_s
        return total / (end_s - begin_s)


async def course_of(arrivals: Arrivals, log: Log, jobs: int) -> tuple[Course, Told]:
    """Fold the log from its beginning up to what had arrived. Raises LogOverflowed, LogUnavailable."""
    state, course, told = CellState(CELL), Course(), Told(array("d", [NEVER]) * jobs)
    end = arrivals.first + len(arrivals.at_s)
    async for record in records_of(log, [arrivals.tp]):
        if record.offset >= end:
            break
        read, version = log_record(record, keys=None), state.version
        fold_record(state, read)
        # What was not accepted changes nothing.
        if record.offset >= arrivals.first and state.version != version and isinstance(read.decision, Decision):
            at_s = arrivals.at_s[record.offset - arrivals.first]
            course.note(at_s, sum(pool.allocated_milli for pool in state.pools.values()), state.waiting)
            _take(told, read.decision, at_s)
    return course, told


def _take(told: Told, decision: Decision, at_s: float) -> None:
    told.records += 1
    told.effects += len(decision.effects)
    for effect in decision.effects:
        if not isinstance(effect, e.JobStarted | e.JobFinished | e.JobFailed | e.JobCancelled):
            continue
        number = number_of(effect.job)
        if number is None or number >= len(told.started_s):
            continue
        if not isinstance(effect, e.JobStarted):
            told.finished += isinstance(effect, e.JobFinished)
            told.last_finish_s = at_s
            if told.started_s[number] == NEVER:
                told.gone_s[number] = at_s
        elif told.started_s[number] == NEVER:
            told.started_s[number] = at_s
            told.started += 1
