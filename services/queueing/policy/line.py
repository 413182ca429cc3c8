"""The waiting jobs of a queue, or of one of its tenants, in their order, by class; and the head that a window shows."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from services.queueing.policy.classes import ClassKey, class_of
from services.queueing.policy.row import Row, Shown
from shared.cluster.config import Queue
from shared.cluster.queue_order import Order, order_in
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.values import JobSpec

Place = tuple[ClassKey, Order]
"""Where a job stands in its line."""


@dataclass(slots=True)
class Line:
    """The jobs of one queue that may start. A strict queue is one class: nobody overtakes, so its head is a prefix.

    A queue in fair-share order has a line for each `tenant`. Which of them is next is placement's to say: it knows the
    shares as of now, and they change with each start.
    """

    queue: Queue
    shown: Shown
    tenant: str | None = None
    rows: dict[ClassKey, Row] = field(default_factory=dict)
    waiting: int = 0

    def place(self, spec: JobSpec, submit_ms: int, number: int) -> Place:
        """Where this job belongs."""
        key = () if self.queue.discipline is QueueDiscipline.STRICT_FIFO else class_of(spec)
        return key, order_in(self.queue, spec, submit_ms, number)

    def among_alike(self, place: Place, length_ms: int) -> Place:
        """The place of a job that is alike only with those that may run as long as it may."""
        key, order = place
        return place if self.queue.discipline is QueueDiscipline.STRICT_FIFO else ((*key, length_ms), order)

    def add(self, place: Place) -> bool:
        """Put a job in its place. Whether the last window would show it, or would be cut by it."""
        key, order = place
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(self.shown)
        self.waiting += 1
        return row.add(order)

    def remove(self, place: Place) -> bool:
        """Take a job out. Whether another window is due by that. Raises KeyError for a job that is not here."""
        key, order = place
        row = self.rows[key]
        is_due = row.remove(order)
        self.waiting -= 1
        if not row:
            del self.rows[key]
        return is_due

    def head(self, enough: int) -> QueueHead:
        """What a window shows: the first jobs of each class, in the queue's order; cuts where a class has more. Of a
        class in which nothing moves so many are `enough`.
        """
        ordered, lasts = list[Order](), list[Order]()
        for row in self.rows.values():
            row.adapt(enough)
            firsts = row.head()
            if len(row) > len(firsts):
                lasts.append(firsts[-1])
            ordered += firsts
        if len(self.rows) > 1:
            ordered.sort()
        return QueueHead(
            queue=self.queue.name,
            discipline=self.queue.discipline,
            jobs=tuple([order[-1] for order in ordered]),
            cuts=tuple(sorted(bisect_left(ordered, last) for last in lasts)),
            waiting=self.waiting,
            tenant=self.tenant,
        )
