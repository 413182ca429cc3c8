"""As few units as possible: the one with the least room that holds all; else the roomiest first, each filled to the
brim, and for what is left over again the one with the least room that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Part = tuple[int, int]
"""A unit, and how many come to it."""

Rooms = Sequence[int] | Mapping[int, int]
"""How many each unit holds."""


def fewest(room: Rooms, units: Sequence[int], wanted: int) -> list[Part]:
    """How `wanted` are divided among these units; `room[unit]` is what each holds. In the order of the units, which
    stands at all ties; empty where they do not fit.
    """
    chosen: list[Part] = []
    order = sorted(units, key=room.__getitem__, reverse=True)  # equals stay in their order
    for at, unit in enumerate(order):
        here = room[unit]
        if here >= wanted:
            chosen.append((_tightest(room, order, at, wanted), wanted))
            return sorted(chosen)
        if not here:
            break
        chosen.append((unit, here))
        wanted -= here
    return []


def _tightest(room: Rooms, order: list[int], at: int, wanted: int) -> int:
    """The unit from `at` on that has the least room of those that hold all; `order` is from the roomiest down."""
    best = order[at]
    for unit in order[at:]:
        if room[unit] < wanted:
            break
        if room[unit] < room[best]:
            best = unit
    return best


def evenly(room: Rooms, units: Sequence[int], wanted: int) -> list[Part]:
    """The wanted workers divided as evenly as room allows. They fit; the roomier units take what does not divide."""
    shares: list[Part] = []
    for at, unit in enumerate(sorted(units, key=lambda unit: (room[unit], -unit))):
        share = min(room[unit], wanted // (len(units) - at))
        shares.append((unit, share))
        wanted -= share
    return sorted(part for part in shares if part[1])
