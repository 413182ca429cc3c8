"""Arrays of which only so many elements may run at once: no more of them stand in a line than may start."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from shared.cluster.queue_order import Order
from shared.events.decisions import Decision
from shared.events.values import JobSpec


class Limited:
    """The elements that could start but for the limit of their array, in their order, and those of them that stand in a
    line: the first ones.
    """

    def __init__(self) -> None:
        self._orders: dict[str, list[Order]] = {}
        self._inside: dict[str, dict[str, None]] = {}
        self._order_of: dict[str, Order] = {}
        self._touched: dict[str, None] = {}
        self.array_of: dict[str, str] = {}
        """The arrays of all elements that were ever here and are not over."""

    def __bool__(self) -> bool:
        """Whether there is any such array."""
        return bool(self.array_of)

    def know(self, spec: JobSpec) -> None:
        """An element that may run already: its end concerns the others."""
        if spec.array_of is not None and spec.array_most_running is not None:
            self.array_of[spec.id] = spec.array_of

    def follow(self, decision: Decision, live: Mapping[str, object]) -> None:
        """Elements that start or end leave less or more room for the others of their array."""
        for effect in decision.effects:
            job_id: str = getattr(effect, "job", "")
            array = self.array_of.get(job_id)
            if array is not None:
                self._touched[array] = None
                if job_id not in live:
                    self.remove(job_id)
                    del self.array_of[job_id]

    def take_touched(self) -> list[str]:
        """The arrays of which something has changed since the last call."""
        found, self._touched = list(self._touched), {}
        return found

    def add(self, array: str, order: Order) -> None:
        """An element could start, or stands elsewhere in the order now."""
        if self._order_of.get(order[-1]) == order:
            return
        self.remove(order[-1])
        self.array_of[order[-1]] = array
        self._order_of[order[-1]] = order
        self._touched[array] = None
        insort(self._orders.setdefault(array, []), order)

    def remove(self, job_id: str) -> None:
        """An element cannot start: it runs, is held, pauses or is over."""
        order = self._order_of.pop(job_id, None)
        if order is not None:
            array = self.array_of[job_id]
            orders = self._orders[array]
            del orders[bisect_left(orders, order)]
            self._touched[array] = None
            self._inside.get(array, {}).pop(job_id, None)

    def settle(self, array: str, most: int) -> tuple[list[str], list[str]]:
        """Who of an array has to leave its line and who to enter it, so that the first `most` stand there."""
        before = self._inside.pop(array, {})
        first = dict.fromkeys(order[-1] for order in self._orders.get(array, ())[:most])
        if first:
            self._inside[array] = first
        if not self._orders.get(array, True):
            del self._orders[array]
        leave = [job_id for job_id in before if job_id not in first]
        return leave, [job_id for job_id in first if job_id not in before]
