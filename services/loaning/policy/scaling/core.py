"""The exact part of the knapsack: dynamic programming over the few choices that can be in a better solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Option = tuple[int, int, int]
"""What a choice loses, its weight, and its number."""


@dataclass(frozen=True, slots=True)
class Core:
    """Of each group its options, by loss. A solution is better than what is known where its losses and the price of
    what it leaves unused are at most `loss_max`.
    """

    options: Sequence[Sequence[Option]]
    capacity: int
    price: int
    loss_max: int


@dataclass(frozen=True, slots=True)
class Improved:
    """The best choices, None where none are better; `is_complete`: all were looked at."""

    choices: list[int] | None
    is_complete: bool


def improve(core: Core, work_max: int) -> Improved:
    """Look at all combinations of options that lose little enough; at so many states at most."""
    if core.loss_max < 0:
        return Improved(None, is_complete=True)
    free = [number for number, options in enumerate(core.options) if len(options) > 1]
    free.sort(key=lambda number: core.options[number][1][0])  # the choices that cost least are made first
    fixed = [options[0] for options in core.options if len(options) == 1]
    start = sum(weight for _, weight, _ in fixed)
    states = {start: sum(loss for loss, _, _ in fixed)}
    room = [0]  # the most that the groups behind each can add
    for number in reversed(free):
        room.append(room[-1] + max(weight for _, weight, _ in core.options[number]))
    stages = list[dict[int, tuple[int, int]]]()
    for position, number in enumerate(free):
        states, chosen = _stage(core, states, core.options[number], room[len(free) - 1 - position])
        stages.append(chosen)
        work_max -= len(states) * len(core.options[number])
        if work_max < 0:
            return Improved(None, is_complete=False)
    ends = {weight: loss + core.price * (core.capacity - weight) for weight, loss in states.items()}
    ends = {weight: loss for weight, loss in ends.items() if loss <= core.loss_max and weight <= core.capacity}
    if not ends:
        return Improved(None, is_complete=True)
    return Improved(_chosen(core, free, stages, min(ends, key=lambda w: (ends[w], w))), is_complete=True)


def _stage(
    core: Core, states: dict[int, int], options: Sequence[Option], room: int
) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
    """The states behind one more group: of each weight the least loss, and the choice and weight that led there."""
    found, chosen = dict[int, int](), dict[int, tuple[int, int]]()
    capacity, price, loss_max = core.capacity, core.price, core.loss_max
    for before, lost in states.items():
        for loss, weight, choice in options:
            total, after = lost + loss, before + weight
            if total > loss_max:
                break
            unused = capacity - after - room
            if after > capacity or (unused > 0 and total + price * unused > loss_max):
                continue
            if after not in found or total < found[after]:
                found[after] = total
                chosen[after] = choice, before
    return found, chosen


def _chosen(core: Core, free: Sequence[int], stages: Sequence[dict[int, tuple[int, int]]], end: int) -> list[int]:
    """Back from the last state to the first."""
    choices = [options[0][2] for options in core.options]
    for number, stage in zip(reversed(free), reversed(stages), strict=True):
        choices[number], end = stage[end]
    return choices
