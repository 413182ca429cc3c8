"""How a cell stood at each time of a simulated trace: what plots and medians are made of."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from fallow.services.metrics.policy.kant.sor import Sor
from fallow.services.metrics.policy.time_weighted import TimeWeightedRatio
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.decisions import Decision

HOUR_MS = 3_600_000


class Steps:
    """A ratio that changes in steps, as it was at every time."""

    __slots__ = ("_at_ms", "_values")

    def __init__(self) -> None:
        self._at_ms, self._values = array("q"), array("d")

    def set(self, at_ms: int, part: int, whole: int) -> None:
        """From `at_ms` on it is `part / whole`, and 0 of nothing. Time must not go back."""
        value = part / whole if whole else 0.0
        if self._values and self._values[-1] == value:
            return
        if self._at_ms and self._at_ms[-1] == at_ms:
            self._values[-1] = value
        else:
            self._at_ms.append(at_ms)
            self._values.append(value)

    def between(self, from_ms: int, to_ms: int) -> list[tuple[int, float]]:
        """For how long (ms) it had which value, from one time to another, in the order of time."""
        first = max(0, bisect_right(self._at_ms, from_ms) - 1)
        times = [*self._at_ms[first : bisect_right(self._at_ms, to_ms)], to_ms]
        if self._at_ms and times[0] < from_ms:
            times[0] = from_ms
        return [(later - at_ms, self._values[first + number]) for number, (at_ms, later) in enumerate(pairwise(times))]

    def mean(self, from_ms: int, to_ms: int) -> float | None:
        """Its mean over this time; None of no time."""
        parts = self.between(from_ms, to_ms)
        total_ms = sum(ms for ms, _ in parts)
        return sum(ms * value for ms, value in parts) / total_ms if total_ms else None

    def median(self, from_ms: int, to_ms: int) -> float | None:
        """The smallest value that it does not exceed for at least half of this time; None of no time."""
        parts = sorted((value, ms) for ms, value in self.between(from_ms, to_ms))
        left_ms = -(-sum(ms for _, ms in parts) // 2)
        for value, ms in parts:
            left_ms -= ms
            if left_ms <= 0 < ms:
                return value
        return None


class Course:
    """Allocation, fragmentation and waiting jobs at each time, and the SOR of each full hour.

    `gar`, `gfr` and `sor` belong to others: it reads them in front of and behind each decision.
    """

    def __init__(self, gar: TimeWeightedRatio, gfr: TimeWeightedRatio, sor: Sor) -> None:
        self.allocated, self.fragmented = Steps(), Steps()
        self.waiting: list[tuple[int, int]] = []
        self.sor_of_hours: list[float] = []
        self._gar, self._gfr, self._sor = gar, gfr, sor
        self._held_until = Fraction(0)

    def before(self, _: CellState, decision: Decision) -> None:
        """In front of the next decision: the hours that end before it are complete. The nodes are always the same, so
        an hour's SOR follows from those up to its ends.
        """
        while (until_ms := (len(self.sor_of_hours) + 1) * HOUR_MS) <= decision.at_ms:
            held = (self._sor.value(until_ms) or Fraction(0)) * until_ms
            self.sor_of_hours.append(float((held - self._held_until) / HOUR_MS))
            self._held_until = held

    def behind(self, state: CellState, decision: Decision) -> None:
        """Behind it, when the ratios have taken it in."""
        at_ms = decision.at_ms
        self.allocated.set(at_ms, self._gar.part, self._gar.whole)
        self.fragmented.set(at_ms, self._gfr.part, self._gfr.whole)
        waiting = self.waiting
        if waiting and waiting[-1][0] == at_ms:
            waiting[-1] = (at_ms, state.waiting)
        elif not waiting or waiting[-1][1] != state.waiting:
            waiting.append((at_ms, state.waiting))

    def sor_median(self, from_ms: int, to_ms: int) -> float | None:
        """The median over the full hours in this time; None without one."""
        hours = sorted(self.sor_of_hours[-(-from_ms // HOUR_MS) : to_ms // HOUR_MS])
        return _middle(hours)


def _middle(ordered: Sequence[float]) -> float | None:
    return ordered[(len(ordered) - 1) // 2] if ordered else None
