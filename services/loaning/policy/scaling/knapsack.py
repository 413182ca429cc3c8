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

from fallow.services.loaning.policy.scaling.core import Core, Option, improve
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
    nets = [_nets(group, hull, price, per) for group, hull in zip(groups, hulls, strict=True)]
    peaks = list(map(max, nets))
    total = sum(peaks) + price * capacity
    value_max = total // per
    if (value_max - value) * PPM <= gap_ppm_max * value_max:
        return Solution(tuple(choices), value, value_max)
    loss_max = total - per * (value + 1)
    options = [_options(group, net, peak, loss_max) for group, net, peak in zip(groups, nets, peaks, strict=True)]
    found = improve(Core(options, capacity, price, loss_max), work_max)
    if found.choices is not None:
        choices = found.choices
    value = _value(groups, choices)
    return Solution(tuple(choices), value, value if found.is_complete else value_max)


def _hull_of(group: Group, capacity: int) -> Sequence[int]:
    """The hull of the choices that fit at all. Most groups are their own hull: each worker adds less than the last."""
    weights, values = group.weights, group.values
    if weights[-1] <= capacity and _is_hull(weights, values):
        return range(len(weights))
    fitting = [choice for choice, weight in enumerate(weights) if weight <= capacity]
    return upper_hull(weights, values, undominated_of(group, fitting))


def _is_hull(weights: Sequence[int], values: Sequence[int]) -> bool:
    """Whether each choice weighs more and is worth more than the one before, and less a GPU, by products."""
    rise, run = 1, 0
    for position in range(1, len(weights)):
        more_worth, more_weight = values[position] - values[position - 1], weights[position] - weights[position - 1]
        if more_worth <= 0 or more_weight <= 0 or more_worth * run >= rise * more_weight:
            return False
        rise, run = more_worth, more_weight
    return True


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


def _nets(group: Group, hull: Sequence[int], price: int, per: int) -> list[int]:
    """What each choice is worth beyond its price, in parts of `per`. One that does not fit by itself counts as much as
    the best that does, at most, and is in no solution.
    """
    weights, values = group.weights, group.values
    nets = [per * value - price * weight for weight, value in zip(weights, values, strict=True)]
    if len(hull) < len(nets):
        peak = max(nets[choice] for choice in hull)
        return [min(net, peak) for net in nets]
    return nets


def _value(groups: Sequence[Group], choices: Sequence[int]) -> int:
    return sum([group.values[choice] for group, choice in zip(groups, choices, strict=True)])


def _options(group: Group, nets: Sequence[int], peak: int, loss_max: int) -> Sequence[Option]:
    """The choices that can be in a better solution, with what they lose against the group's peak."""
    least, weights = peak - loss_max, group.weights
    return sorted([(peak - net, weights[choice], choice) for choice, net in enumerate(nets) if net >= least])
