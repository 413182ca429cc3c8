"""The choices of one group that a linear relaxation takes: the upper hull of value over weight."""

from __future__ import annotations

from collections.abc import Sequence


def undominated(weights: Sequence[int], values: Sequence[int]) -> list[int]:
    """The choices, by weight, of which none weighs as little as another and is worth as much or less."""
    kept: list[int] = []
    for choice in sorted(range(len(weights)), key=lambda c: (weights[c], -values[c])):
        if not kept or values[choice] > values[kept[-1]]:
            kept.append(choice)
    return kept


def upper_hull(weights: Sequence[int], values: Sequence[int], choices: Sequence[int]) -> list[int]:
    """Of undominated choices those on the hull: each step along it is worth less a GPU than the one before."""
    hull: list[int] = []
    for choice in choices:
        while len(hull) > 1:
            first, second = hull[-2], hull[-1]
            rise, run = values[second] - values[first], weights[second] - weights[first]
            if rise * (weights[choice] - weights[second]) > (values[choice] - values[second]) * run:
                break
            hull.pop()
        hull.append(choice)
    return hull
