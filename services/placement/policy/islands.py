"""Which devices of a node a worker gets: those of one NVLink island where it can be, so that they speak without the
slow way between islands, and of the island with the least room, so that the others stay whole.
"""

from __future__ import annotations

from functools import lru_cache

from services.placement.policy.fewest import fewest
from services.placement.policy.fit import MASK_BITS_USUAL
from shared.cluster.node import lowest, mask_of

Devices = tuple[int, ...]


def devices_for(free: int, islands: tuple[int, ...], gpus: int, workers: int) -> tuple[Devices, ...]:
    """The devices of each of so many workers that come to a node of these free devices together. They fit."""
    if free >> MASK_BITS_USUAL:
        return _split(free, islands, gpus, workers)
    return _split_usual(free, islands, gpus, workers)


@lru_cache(maxsize=16_384)
def _split_usual(free: int, islands: tuple[int, ...], gpus: int, workers: int) -> tuple[Devices, ...]:
    return _split(free, islands, gpus, workers)


def _split(free: int, islands: tuple[int, ...], gpus: int, workers: int) -> tuple[Devices, ...]:
    found = []
    for _ in range(workers):
        devices = lowest(free, gpus) if len(islands) < 2 else _of_islands(free, islands, gpus)  # noqa: PLR2004 - one island is no choice
        found.append(devices)
        free &= ~mask_of(devices)
    return tuple(found)


def one_holds(free: int, islands: tuple[int, ...], gpus: int) -> bool:
    """Whether so many of these free devices are on one island, or could never be."""
    if len(islands) < 2 or gpus > max(islands):  # noqa: PLR2004 - one island is no choice
        return True
    return any(mask.bit_count() >= gpus for mask in _masks(free, islands))


def _masks(free: int, islands: tuple[int, ...]) -> list[int]:
    """The free devices of each island."""
    masks, begin = [], 0
    for size in islands:
        masks.append(free & ((1 << size) - 1) << begin)
        begin += size
    return masks


def _of_islands(free: int, islands: tuple[int, ...], gpus: int) -> Devices:
    """Of as few islands as can be: the least roomy one that holds all; else the roomiest first."""
    masks = _masks(free, islands)
    chosen = fewest([mask.bit_count() for mask in masks], range(len(masks)), gpus)
    return tuple(sorted(device for island, count in chosen for device in lowest(masks[island], count)))
