"""The mean over time of a part of a whole, exactly: of a cell and of each of its pools."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

WHOLES_MAX = 64
BITS = 64


class TimeWeightedRatio:
    """`part / whole` as a function of cell time that changes in steps. While there is no whole there is no ratio, and
    that time does not count.

    Kept as one sum for each whole that there was, so the mean is exact: a whole changes with nodes, seldom. Where there
    were very many wholes, what is behind is put together, exact to 2^-64 for each of them.
    """

    def __init__(self) -> None:
        self.part = 0
        self.whole = 0
        self._since_ms = 0
        self._time_ms = 0
        self._part_ms: dict[int, int] = {}
        self._behind_ms = 0
        """Of wholes that were put together: the sum of `part / whole` over time, times 2^64."""

    def set(self, at_ms: int, part: int, whole: int) -> None:
        """From `at_ms` on it is `part / whole`. Time must not go back."""
        if part == self.part and whole == self.whole:
            return
        if at_ms < self._since_ms:
            raise ValueError(f"at_ms: {at_ms}, time has come to {self._since_ms} already")
        if self.whole:
            passed_ms = at_ms - self._since_ms
            self._time_ms += passed_ms
            self._part_ms[self.whole] = self._part_ms.get(self.whole, 0) + self.part * passed_ms
            if len(self._part_ms) > WHOLES_MAX:
                self._behind_ms += sum((part_ms << BITS) // whole for whole, part_ms in self._part_ms.items())
                self._part_ms.clear()
        self.part, self.whole, self._since_ms = part, whole, at_ms

    def twin(self) -> TimeWeightedRatio:
        """Zero of the same wholes, over the same time."""
        other = TimeWeightedRatio()
        other.whole, other._since_ms, other._time_ms = self.whole, self._since_ms, self._time_ms
        return other

    def now(self) -> Fraction | None:
        """The ratio as it is; None without a whole."""
        return Fraction(self.part, self.whole) if self.whole else None

    def mean(self, until_ms: int) -> Fraction | None:
        """The mean up to `until_ms`; None while no time has passed with a whole."""
        open_ms = max(0, until_ms - self._since_ms) if self.whole else 0
        time_ms = self._time_ms + open_ms
        if not time_ms:
            return None
        behind = Fraction(self._behind_ms, 1 << BITS)
        total = sum((Fraction(part_ms, whole) for whole, part_ms in self._part_ms.items()), behind)
        if open_ms:
            total += Fraction(self.part * open_ms, self.whole)
        return total / time_ms


class PoolRatios:
    """A ratio of each pool, and of the whole cell: the parts and the wholes of its pools together."""

    def __init__(self) -> None:
        self.cell = TimeWeightedRatio()
        self.pools: dict[str, TimeWeightedRatio] = {}

    def set(self, at_ms: int, shares: Iterable[tuple[str, int, int]]) -> None:
        """From `at_ms` on these are (pool, part, whole). A pool that is not among them is gone."""
        parts = wholes = 0
        gone = dict.fromkeys(self.pools)
        for name, part, whole in shares:
            gone.pop(name, None)
            ratio = self.pools.get(name)
            if ratio is None:
                ratio = self.pools[name] = TimeWeightedRatio()
            ratio.set(at_ms, part, whole)
            parts += part
            wholes += whole
        self.cell.set(at_ms, parts, wholes)
        for name in gone:
            self.pools[name].set(at_ms, 0, 0)
