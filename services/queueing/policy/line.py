"""One queue's waiting jobs in their order, by class; and the head of it that placement needs to see."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import merge

from services.queueing.policy.classes import ClassKey, class_of
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.values import JobSpec

Order = tuple[int, int, str]
"""Higher priority first, then the earlier submit time, then the id."""


def order_of(spec: JobSpec, submit_ms: int) -> Order:
    """Where a job stands in its queue."""
    return (-spec.priority, submit_ms, spec.id)


@dataclass(slots=True)
class Line:
    """The jobs of one queue that may start. A strict queue is one class: nobody overtakes, so its head is a prefix."""

    name: str
    discipline: QueueDiscipline
    by_class: dict[ClassKey, list[Order]] = field(default_factory=dict)
    waiting: int = 0

    def _key(self, spec: JobSpec) -> ClassKey:
        return () if self.discipline is QueueDiscipline.STRICT_FIFO else class_of(spec)

    def add(self, spec: JobSpec, submit_ms: int, most: int) -> bool:
        """Put a job in its place. Whether a head of `most` jobs of each class shows it, or is cut by it from now on."""
        jobs = self.by_class.setdefault(self._key(spec), [])
        order = order_of(spec, submit_ms)
        insort(jobs, order)
        self.waiting += 1
        return bisect_left(jobs, order) < most or len(jobs) == most + 1

    def remove(self, spec: JobSpec, submit_ms: int, most: int) -> bool:
        """Take a job out. Whether another one comes into the head of `most` by that, or the head is no longer cut.

        Without the latter, a walk would end at a cut behind which nobody stands, and wait for a window for nothing.
        """
        key, order = self._key(spec), order_of(spec, submit_ms)
        jobs = self.by_class[key]
        at = bisect_left(jobs, order)
        if at == len(jobs) or jobs[at] != order:
            raise KeyError(f"job {spec.id} does not wait in queue {self.name}")
        del jobs[at]
        self.waiting -= 1
        if not jobs:
            del self.by_class[key]
        return len(jobs) == most or at < most <= len(jobs)

    def head(self, most: int) -> QueueHead:
        """The first `most` jobs of each class, in the queue's order; cuts where a class has more."""
        firsts = [jobs[:most] for jobs in self.by_class.values()]
        last = {jobs[most - 1] for jobs in self.by_class.values() if len(jobs) > most}
        ordered = list(merge(*firsts))
        return QueueHead(
            queue=self.name,
            discipline=self.discipline,
            jobs=tuple(order[2] for order in ordered),
            cuts=tuple(at for at, order in enumerate(ordered) if order in last),
            waiting=self.waiting,
        )
