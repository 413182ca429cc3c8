"""The multiple-choice knapsack: one choice of each group, the largest value within a capacity.

1. Relax: the steps along the hulls of all groups, the best value a GPU first, until one does not fit. That gives a
   solution, and by the price of a GPU there (a Lagrange multiplier) a bound for all others.
2. If the bound leaves a gap: what a choice loses at that price says whether it can be in a better solution. Few can.
   Of these the best is found exactly (`core.py`).

All numbers are whole, and so is the proof; floats only order the steps, which the bound does not rely on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fallow.services.loaning.policy.scaling.core import Core, improve
from fallow.services.loaning.policy.scaling.hull import undominated, upper_hull

PPM = 1_000_000
WORK_MAX = 2_000_000
"""States of the exact search that are looked at before its bound is returned instead: a second or two."""


@dataclass(frozen=True, slots=True)
class Group:
    """The choices of one job. The first weighs nothing and is worth nothing. Raises ValueError."""

    weights: tuple[int, ...]
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.weights or self.weights[0] or self.values[0]:
            raise ValueError("the first choice of a group must weigh 0 and be worth 0")
        if len(self.weights) != len(self.values):
            raise ValueError(f"{len(self.weights)} weights and {len(self.values)} values: must be as many")
        if min(self.weights) < 0:
            raise ValueError(f"weight = {min(self.weights)}: must be at least 0")


@dataclass(frozen=True, slots=True)
class Solution:
    """The choice of each group, in the order of the groups. No solution is worth more than `value_max`."""

    choices: tuple[int, ...]
    value: int
    value_max: int

    @property
    def is_exact(self) -> bool:
        """Whether it is proven that none is worth more."""
        return self.value == self.value_max


def solve(groups: Sequence[Group], capacity: int, gap_ppm_max: int = 0, work_max: int = WORK_MAX) -> Solution:
    """The choices that are worth most, or within so many millionths of the bound. Between equal ones the first group
    with the better step has it. Raises ValueError where a number is below 0.
    """
    for name, number in (("capacity", capacity), ("gap_ppm_max", gap_ppm_max), ("work_max", work_max)):
        if number < 0:
            raise ValueError(f"{name} = {number}: must be at least 0")
    hulls = [_hull_of(group, capacity) for group in groups]
    choices, step = _relaxed(groups, hulls, capacity)
    value = _value(groups, choices)
    price, per = step or (0, 1)
    peaks = [_peak(group, hull, price, per) for group, hull in zip(groups, hulls, strict=True)]
    total = sum(peaks) + price * capacity
    value_max = total // per
    if (value_max - value) * PPM <= gap_ppm_max * value_max:
        return Solution(tuple(choices), value, value_max)
    core = _core(groups, capacity, (price, per), peaks, total - per * (value + 1))
    found = improve(core, work_max)
    if found.choices is not None:
        choices = found.choices
    value = _value(groups, choices)
    return Solution(tuple(choices), value, value if found.is_complete else value_max)


def _hull_of(group: Group, capacity: int) -> list[int]:
    """The hull of the choices that fit at all. Most groups are their own hull: each worker adds less than the last."""
    fitting = [choice for choice, weight in enumerate(group.weights) if weight <= capacity]
    return upper_hull(group.weights, group.values, undominated_of(group, fitting))


def undominated_of(group: Group, choices: Sequence[int]) -> list[int]:
    """Those of these choices that no other one beats."""
    found = undominated([group.weights[c] for c in choices], [group.values[c] for c in choices])
    return [choices[position] for position in found]


def _relaxed(
    groups: Sequence[Group], hulls: Sequence[Sequence[int]], capacity: int
) -> tuple[list[int], tuple[int, int] | None]:
    """A solution by steps along the hulls, and the value and weight of the first step that did not fit, or of the one
    that filled the capacity; None where all steps fit.
    """
    owners, worths, weights, targets = list[int](), list[int](), list[int](), list[int]()
    for number, (group, hull) in enumerate(zip(groups, hulls, strict=True)):
        for before, after in pairwise(hull):
            owners.append(number)
            worths.append(group.values[after] - group.values[before])
            weights.append(group.weights[after] - group.weights[before])
            targets.append(after)
    ratios = [worth / weight for worth, weight in zip(worths, weights, strict=True)]
    choices, blocked, left = [hull[0] for hull in hulls], set[int](), capacity
    price: tuple[int, int] | None = None
    for step in sorted(range(len(ratios)), key=ratios.__getitem__, reverse=True):
        owner = owners[step]
        if owner in blocked:
            continue
        if weights[step] <= left:
            left -= weights[step]
            choices[owner] = targets[step]
        else:
            blocked.add(owner)
        if price is None and (owner in blocked or not left):
            price = worths[step], weights[step]
        if not left:
            break
    return choices, price


def _peak(group: Group, hull: Sequence[int], price: int, per: int) -> int:
    """The most that a choice of the group is worth beyond its price, in parts of `per`."""
    return max(per * group.values[choice] - price * group.weights[choice] for choice in hull)


def _value(groups: Sequence[Group], choices: Sequence[int]) -> int:
    return sum(group.values[choice] for group, choice in zip(groups, choices, strict=True))


def _core(groups: Sequence[Group], capacity: int, price: tuple[int, int], peaks: Sequence[int], loss_max: int) -> Core:
    """Of each group the choices that can be in a better solution, with what they lose against its peak."""
    per_gpu, per = price
    options = []
    for group, peak in zip(groups, peaks, strict=True):
        losses = (
            (c, w, peak - per * v + per_gpu * w)
            for c, (w, v) in enumerate(zip(group.weights, group.values, strict=True))
        )
        kept = [(loss, weight, choice) for choice, weight, loss in losses if loss <= loss_max and weight <= capacity]
        options.append(sorted(kept))
    return Core(options, capacity, per_gpu, loss_max)
