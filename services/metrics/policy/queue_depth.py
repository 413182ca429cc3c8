"""How many jobs wait, whose they are, and how long the oldest of them has waited."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from shared.cluster.job import WAITING
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import Decision


class QueueDepth:
    """The waiting jobs of a cell."""

    def __init__(self) -> None:
        self.by_tenant: Counter[str] = Counter()
        self._waiting: dict[str, str] = {}
        self._by_age: list[tuple[int, str]] = []

    def begin(self, state: CellState) -> None:
        """Start from a state in the middle of a cell's life."""
        for job in state.jobs.values():
            if job.status in WAITING:
                self._wait(job.id, job.spec.tenant, job.submit_ms)

    def take(self, state: CellState, decision: Decision) -> None:
        """The state behind the next decision."""
        for effect in decision.effects:
            match effect:
                case e.JobEnqueued():
                    self._wait(effect.spec.id, effect.spec.tenant, effect.submit_ms)
                case e.JobRequeued():
                    job = state.jobs.get(effect.job)
                    if job is not None:
                        self._wait(job.id, job.spec.tenant, job.submit_ms)
                case e.JobStarted() | e.JobCancelled():
                    self._go(effect.job)

    @property
    def count(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    def oldest_ms(self, now_ms: int) -> int:
        """How long ago the first of the waiting jobs was submitted; 0 when none waits."""
        while self._by_age and self._by_age[0][1] not in self._waiting:
            heappop(self._by_age)
        return max(0, now_ms - self._by_age[0][0]) if self._by_age else 0

    def _wait(self, job: str, tenant: str, submit_ms: int) -> None:
        if job not in self._waiting:
            self._waiting[job] = tenant
            self.by_tenant[tenant] += 1
            heappush(self._by_age, (submit_ms, job))

    def _go(self, job: str) -> None:
        tenant = self._waiting.pop(job, None)
        if tenant is not None:
            self.by_tenant[tenant] -= 1
            if not self.by_tenant[tenant]:
                del self.by_tenant[tenant]
