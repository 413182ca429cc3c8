"""JCT, the job completion time: from submission to the good end."""

from __future__ import annotations

from collections.abc import Collection

from fallow.services.metrics.policy.kant.waiting import KEPT_MAX, Waits
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision


class CompletionTimes:
    """Every good end adds the time since its job was submitted. Jobs in `excluded` do not count, such as those that a
    replay carries over.
    """

    def __init__(self, excluded: Collection[str] = frozenset(), kept_max: int = KEPT_MAX) -> None:
        self.times = Waits(kept_max)
        self._excluded = excluded
        self._submit_ms: dict[str, int] = {}

    def begin(self, state: CellState) -> None:
        """Start from a state in the middle of a cell's life."""
        for job in state.jobs.values():
            if job.id not in self._excluded:
                self._submit_ms[job.id] = job.submit_ms

    def take(self, state: CellState, decision: Decision) -> None:  # noqa: ARG002 - all accumulators are fed alike
        """The next decision."""
        for effect in decision.effects:
            kind = type(effect)
            if kind is e.JobEnqueued:
                if effect.spec.id not in self._excluded:  # type: ignore[union-attr]  # said by the line above
                    self._submit_ms[effect.spec.id] = effect.submit_ms  # type: ignore[union-attr]
            elif kind is e.JobFinished:
                submit_ms = self._submit_ms.pop(effect.job, None)  # type: ignore[union-attr]
                if submit_ms is not None:
                    self.times.add(max(0, decision.at_ms - submit_ms))
            elif kind is e.JobFailed or kind is e.JobCancelled:
                self._submit_ms.pop(effect.job, None)  # type: ignore[union-attr]
