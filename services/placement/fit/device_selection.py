"""Which devices of a node a worker gets: those of one NVLink island where it can be, so that they speak without the
slow way between islands, and of the island with the least room, so that the others stay whole.

Of the devices of an island those at as few network cards as possible, by the same rule: whole groups at a card for
workers of whole groups, what is left of a broken one for small workers. Ties go to the lowest devices.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import accumulate

from fallow.services.placement.fit.min_units import fewest
from fallow.shared.cluster.model.node import lowest, mask_of
from fallow.shared.events.fields.values import NodeSpec

MASK_BITS_USUAL = 16
"""What is asked of nodes of so many devices is remembered."""

Devices = tuple[int, ...]

Sizes = tuple[int, ...]
"""The sizes of consecutive groups of devices; those of less than two groups are no choice."""


def devices_of_one(free: int, spec: NodeSpec, gpus: int) -> Devices:
    """The devices of one worker that comes to this node, of whose devices these are free. It fits."""
    if len(spec.islands) > 1 or len(spec.nics) > 1:
        return devices_for(free, spec, gpus, 1)[0]
    return lowest(free, gpus) if free >> MASK_BITS_USUAL else _lowest_of_usual(free, gpus)


def devices_for(free: int, spec: NodeSpec, gpus: int, workers: int) -> tuple[Devices, ...]:
    """The devices of each of so many workers that come to a node of these free devices together. They fit."""
    if workers == 1 and len(spec.islands) < 2 and len(spec.nics) < 2:  # noqa: PLR2004 - one group is no choice
        return (lowest(free, gpus) if free >> MASK_BITS_USUAL else _lowest_of_usual(free, gpus),)
    if free >> MASK_BITS_USUAL:
        return _split(free, spec.islands, spec.nics, gpus, workers)
    return _split_usual(free, spec.islands, spec.nics, gpus, workers)


@lru_cache(maxsize=4096)
def _lowest_of_usual(free: int, count: int) -> Devices:
    return lowest(free, count)


@lru_cache(maxsize=16_384)
def _split_usual(free: int, islands: Sizes, nics: Sizes, gpus: int, workers: int) -> tuple[Devices, ...]:
    return _split(free, islands, nics, gpus, workers)


def _split(free: int, islands: Sizes, nics: Sizes, gpus: int, workers: int) -> tuple[Devices, ...]:
    masks = _masks(free, islands) if len(islands) > 1 else [free]
    begins = list(accumulate(nics, initial=0))
    # The islands that hold a worker each, the least roomy first: no worker looks at all of them.
    whole = [(mask.bit_count(), at) for at, mask in enumerate(masks) if mask.bit_count() >= gpus]
    heapify(whole)
    found = []
    for _ in range(workers):
        if whole:
            parts = [(heappop(whole)[1], gpus)]
        else:
            parts = fewest([mask.bit_count() for mask in masks], range(len(masks)), gpus)
        devices = list[int]()
        for at, count in parts:
            here = _at_fewest_nics(masks[at], nics, begins, count)
            devices += here
            masks[at] &= ~mask_of(tuple(here))
            if len(parts) == 1 and masks[at].bit_count() >= gpus:
                heappush(whole, (masks[at].bit_count(), at))
        found.append(tuple(sorted(devices)))
    return tuple(found)


def _at_fewest_nics(free: int, nics: Sizes, begins: list[int], count: int) -> list[int]:
    """So many of the free devices of an island. Only network cards between its first and its last are looked at."""
    if len(nics) < 2 or not free:  # noqa: PLR2004 - one group is no choice
        return list(lowest(free, count))
    first = bisect_right(begins, (free & -free).bit_length() - 1) - 1
    last = min(bisect_right(begins, free.bit_length() - 1), len(nics))
    parts = _of_fewest(free >> begins[first], nics[first:last], count)
    return [begins[first] + device for at_nic, few in parts for device in lowest(at_nic, few)]


def held_by_islands(free: int, islands: Sizes, gpus: int) -> int:
    """How many workers of so many GPUs these free devices hold with each of them on one island; or anyhow, where no
    island could ever hold one.
    """
    if len(islands) < 2 or gpus > max(islands):  # noqa: PLR2004 - one island is no choice
        return free.bit_count() // gpus
    return sum(mask.bit_count() // gpus for mask in _masks(free, islands))


def _masks(free: int, sizes: Sizes) -> list[int]:
    """The free devices of each group."""
    masks, begin = [], 0
    for size in sizes:
        masks.append(free & ((1 << size) - 1) << begin)
        begin += size
    return masks


def _of_fewest(free: int, sizes: Sizes, gpus: int) -> list[tuple[int, int]]:
    """How so many devices are divided among as few groups as can be, each with its free ones: the least roomy one that
    holds all; else the roomiest first.
    """
    if len(sizes) < 2:  # noqa: PLR2004 - one group is no choice
        return [(free, gpus)]
    masks = _masks(free, sizes)
    chosen = fewest([mask.bit_count() for mask in masks], range(len(masks)), gpus)
    return [(masks[group], count) for group, count in chosen]
