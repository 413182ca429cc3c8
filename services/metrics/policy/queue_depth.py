"""How many jobs wait, whose they are, and how long the oldest of them has waited."""

from __future__ import annotations

from collections import Counter

from fallow.services.metrics.policy.effect_dispatch import Acts, act_on
from fallow.shared.cluster.fold.due import DueHeap
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision


class QueueDepth:
    """The waiting jobs of a cell."""

    def __init__(self) -> None:
        self.by_tenant: Counter[str] = Counter()
        self._waiting: dict[str, str] = {}
        self._by_age = DueHeap[tuple[int, str]]()
        self.acts: Acts = {
            e.JobEnqueued: self._enqueued,
            e.JobRequeued: self._requeued,
            e.JobStarted: self._go,
            e.JobCancelled: self._go,
        }

    def begin(self, state: CellState) -> None:
        """Start from a state in the middle of a cell's life."""
        for job in state.jobs.values():
            if job.status in WAITING:
                self._wait(job.id, job.spec.tenant, job.submit_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        act_on(self.acts, state, decision.effects, decision.at_ms)

    @property
    def count(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    def oldest_ms(self, now_ms: int) -> int:
        """How long ago the first of the waiting jobs was submitted; 0 when none waits."""
        self._drop_gone()
        first = self._by_age.first
        return 0 if first is None else max(0, now_ms - first[0])

    def _enqueued(self, _: CellState, effect: e.JobEnqueued, __: int) -> None:
        self._wait(effect.spec.id, effect.spec.tenant, effect.submit_ms)

    def _requeued(self, state: CellState, effect: e.JobRequeued, _: int) -> None:
        job = state.jobs.get(effect.job)
        if job is not None:
            self._wait(job.id, job.spec.tenant, job.submit_ms)

    def _wait(self, job: str, tenant: str, submit_ms: int) -> None:
        if job not in self._waiting:
            self._waiting[job] = tenant
            self.by_tenant[tenant] += 1
            self._by_age.push((submit_ms, job), self._waits)

    def _go(self, _: CellState, effect: e.JobStarted | e.JobCancelled, __: int) -> None:
        tenant = self._waiting.pop(effect.job, None)
        if tenant is not None:
            self.by_tenant[tenant] -= 1
            if not self.by_tenant[tenant]:
                del self.by_tenant[tenant]
            self._drop_gone()

    def _waits(self, entry: tuple[int, str]) -> bool:
        return entry[1] in self._waiting

    def _drop_gone(self) -> None:
        """The oldest that wait no more are let go."""
        by_age, waiting = self._by_age, self._waiting
        while (first := by_age.first) is not None and first[1] not in waiting:
            by_age.pop()
