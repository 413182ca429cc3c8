"""One queue's waiting jobs in their order, by class; and the head of it that placement needs to see."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from services.queueing.policy.classes import ClassKey, class_of
from services.queueing.policy.row import Order, Row, Shown
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.values import JobSpec

Place = tuple[ClassKey, Order]
"""Where a job stands in its line."""


@dataclass(slots=True)
class Line:
    """The jobs of one queue that may start. A strict queue is one class: nobody overtakes, so its head is a prefix."""

    name: str
    discipline: QueueDiscipline
    shown: Shown
    rows: dict[ClassKey, Row] = field(default_factory=dict)
    waiting: int = 0

    def place(self, spec: JobSpec, submit_ms: int) -> Place:
        """Where this job belongs."""
        key = () if self.discipline is QueueDiscipline.STRICT_FIFO else class_of(spec)
        return key, (-spec.priority, submit_ms, spec.id)

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

    def head(self) -> QueueHead:
        """What a window shows: the first jobs of each class, in the queue's order; cuts where a class has more."""
        ordered, lasts = list[Order](), list[Order]()
        for row in self.rows.values():
            row.adapt()
            firsts = row.head()
            if len(row) > len(firsts):
                lasts.append(firsts[-1])
            ordered += firsts
        if len(self.rows) > 1:
            ordered.sort()
        return QueueHead(
            queue=self.name,
            discipline=self.discipline,
            jobs=tuple([order[2] for order in ordered]),
            cuts=tuple(sorted(bisect_left(ordered, last) for last in lasts)),
            waiting=self.waiting,
        )
