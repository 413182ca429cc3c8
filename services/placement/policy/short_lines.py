"""Lines so short that placement needs nobody to show it their heads: it walks all jobs that wait.

That is the walk that windows stand for, so it comes to the same starts, and a job can start in the record that accepts
it.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.cluster.config import CellPart, Queue
from shared.cluster.job import Job, JobStatus
from shared.cluster.queue_order import Order, order_in
from shared.cluster.singly import lacks, may_go_on, next_pause_end_ms
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.queue import QueueHead, QueueOrder


class ShortLines:
    """The jobs that wait in a cell's queues, while there are few. What is over or runs is dropped at the next look.

    Everything here follows from the state; after a decision that is not in force it must be forgotten.
    """

    def __init__(self, part: CellPart, few: int) -> None:
        """With more than twice `few` jobs, held ones counted, they are given up until no more than `few` are left."""
        self._few = few
        self._first = part.queues[0].name
        self._queues = {queue.name: queue for queue in part.queues}
        self._numbers = {queue.name: number for number, queue in enumerate(part.queues)}
        self._jobs: dict[str, None] | None = None
        self.next_cell_ms: int | None = None
        """When the pause of one of them ends, as seen at the last look."""

    def forget(self) -> None:
        """The state is another one."""
        self._jobs, self.next_cell_ms = None, None

    def take(self, state: CellState, effects: Iterable[e.AnyEffect], now_ms: int) -> bool:
        """Follow the state behind these effects. Whether somebody has come who may start."""
        jobs = self._jobs
        if jobs is None:
            return state.waiting <= self._few and self._begin(state)
        if state.waiting > 2 * self._few:
            self.forget()
            return False
        is_due = self.next_cell_ms is not None and self.next_cell_ms <= now_ms
        for effect in effects:
            kind = type(effect)
            if kind is e.JobEnqueued or kind is e.JobUpdated:
                jobs[effect.spec.id] = None  # type: ignore[union-attr]  # said by the line above
                is_due = True
            elif kind is e.JobRequeued or kind is e.JobReleased or kind is e.JobReady:
                jobs[effect.job] = None  # type: ignore[union-attr]
                is_due = True
        return is_due

    def are_back(self, state: CellState) -> bool:
        """Whether there are few again, after there were more."""
        return self._jobs is None and state.waiting <= self._few

    def _begin(self, state: CellState) -> bool:
        self._jobs = {job.id: None for job in state.jobs.values() if job.status is JobStatus.QUEUED}
        return bool(self._jobs)

    def heads(self, state: CellState, now_ms: int) -> list[QueueHead] | None:
        """All jobs that may start now, in their order; None if too many wait."""
        if self._jobs is None:
            return None
        lines: dict[tuple[str, str], list[Order]] = {}
        for job in self._look(state, now_ms):
            spec = job.spec
            queue = self._queue(spec.queue or self._first)
            tenant = spec.tenant if queue.order is QueueOrder.FAIR_SHARE else ""
            lines.setdefault((queue.name, tenant), []).append(order_in(queue, spec, job.submit_ms))
        return [self._head(name, lines[name]) for name in sorted(lines, key=self._place)]

    def _queue(self, name: str) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name=name)
        return queue

    def _look(self, state: CellState, now_ms: int) -> list[Job]:
        assert self._jobs is not None
        found, over, pauses = [], [], []
        if state.singly:  # those that run and lack workers stand in the lines of those that wait
            self._jobs.update((job_id, None) for job_id in state.singly if lacks(state.jobs[job_id]))
        for job_id in self._jobs:
            job = state.jobs.get(job_id)
            if job is None or (job.status is not JobStatus.QUEUED and not lacks(job)):
                over.append(job_id)
                continue
            pause_end_ms = next_pause_end_ms(job, now_ms)
            if pause_end_ms is not None:
                pauses.append(pause_end_ms)
            if may_go_on(job, now_ms):
                found.append(job)
        for job_id in over:
            del self._jobs[job_id]
        self.next_cell_ms = min(pauses, default=None)
        return found

    def _place(self, line: tuple[str, str]) -> tuple[int, tuple[str, str]]:
        """A queue that the cell file does not have comes behind all others."""
        return (self._numbers.get(line[0], len(self._numbers)), line)

    def _head(self, name: tuple[str, str], line: list[Order]) -> QueueHead:
        line.sort()
        queue, tenant = name
        return QueueHead(
            queue=queue,
            discipline=self._queue(queue).discipline,
            jobs=tuple(order[2] for order in line),
            tenant=tenant or None,
        )
