"""How far planned starts were from what came: counted once a job, by its first plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.queue import PlannedStart

REMEMBERED_MAX = 10_000
"""So many planned starts are remembered; the oldest goes first."""


class ForecastError:
    """The first planned start of each job that has not started since."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def planned(self, starts: Sequence[PlannedStart]) -> None:
        """These starts are planned now."""
        for start in starts:
            self._first.setdefault(start.job, start.start_ms)
        while len(self._first) > REMEMBERED_MAX:
            del self._first[next(iter(self._first))]

    def note(self, decision: Decision) -> Iterator[tuple[str, int]]:
        """For each job that has started as planned before: whether it was `early` or `late`, and by how much."""
        if not self._first:
            return
        for effect in decision.effects:
            if isinstance(effect, e.JobStarted):
                first_ms = self._first.pop(effect.job, None)
                if first_ms is not None:
                    yield ("early" if decision.at_ms < first_ms else "late"), abs(decision.at_ms - first_ms)
            elif isinstance(effect, e.JobCancelled | e.JobFinished | e.JobFailed | e.JobHeld):
                self._first.pop(effect.job, None)
