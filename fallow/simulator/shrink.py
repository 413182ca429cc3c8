"""Looks for the shortest story that still fails, by leaving out halves, quarters and so on of what it is made of."""

from __future__ import annotations

from collections.abc import Callable

Fails = Callable[[frozenset[int]], bool]


def shortest(numbers: tuple[int, ...], fails: Fails, tries_max: int) -> tuple[int, ...]:
    """The fewest of these with which it `fails` still, as far as `tries_max` tries can tell. All of them must fail."""
    kept, tries, parts = numbers, 0, 2
    while kept and tries < tries_max:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            without = kept[:start] + kept[start + size :]
            tries += 1
            if fails(frozenset(without)):
                kept, parts = without, max(2, parts - 1)
                break
            if tries >= tries_max:
                return kept
        else:
            if size == 1:
                return kept
            parts = min(len(kept), 2 * parts)
    return kept
