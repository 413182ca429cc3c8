"""Solves again only when the input has changed: most events of a cell change neither the jobs nor the free GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.loaning.policy.scaling.knapsack import Group, Solution, solve


class LastSolution:
    """The last input with its solution."""

    __slots__ = ("_input", "_solution", "solved")

    def __init__(self) -> None:
        self._input: tuple[tuple[Group, ...], int, int] | None = None
        self._solution = Solution((), 0, 0)
        self.solved = 0
        """How often it was solved."""

    def of(self, groups: Sequence[Group], capacity: int, gap_ppm_max: int = 0) -> Solution:
        """The solution of this input. Raises ValueError as `solve` does."""
        asked = tuple(groups), capacity, gap_ppm_max
        if asked != self._input:
            self._solution = solve(groups, capacity, gap_ppm_max)
            self._input = asked
            self.solved += 1
        return self._solution
