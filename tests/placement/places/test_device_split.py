"""The devices of the workers of a gang on one node: as a slow search over all groups finds them, in linear time."""

from __future__ import annotations

import sys
from random import Random
from types import FrameType

import pytest

from fallow.services.placement.fit.device_selection import Devices, Sizes, devices_for
from fallow.services.placement.fit.min_units import fewest
from fallow.shared.cluster.model.node import lowest, mask_of
from fallow.shared.events.fields.values import NodeSpec


def groups_of(free: int, sizes: Sizes) -> list[int]:
    """The free devices of each group; one group where there is no choice."""
    if len(sizes) < 2:
        return [free]
    return [free & mask_of(tuple(range(sum(sizes[:at]), sum(sizes[: at + 1])))) for at in range(len(sizes))]


def naive_split(free: int, spec: NodeSpec, gpus: int, workers: int) -> tuple[Devices, ...]:
    """Every group is looked at for every worker."""
    found = []
    for _ in range(workers):
        devices: list[int] = []
        islands = groups_of(free, spec.islands)
        for island, count in fewest([mask.bit_count() for mask in islands], range(len(islands)), gpus):
            cards = groups_of(islands[island], spec.nics)
            for card, few in fewest([mask.bit_count() for mask in cards], range(len(cards)), count):
                devices += lowest(cards[card], few)
        found.append(tuple(sorted(devices)))
        free &= ~mask_of(found[-1])
    return tuple(found)


def some_sizes(random: Random, devices: int) -> Sizes:
    sizes, left = [], devices if random.random() < 0.8 else 0
    while left:
        sizes.append(random.randint(1, min(left, random.choice((1, 2, 4, 8)))))
        left -= sizes[-1]
    return tuple(sizes)


@pytest.mark.parametrize("seed", range(20))
def test_workers_get_the_devices_that_a_search_over_all_groups_finds(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        devices = random.randint(1, 24)
        free = random.getrandbits(devices) | 1 << random.randrange(devices)
        islands, nics = some_sizes(random, devices), some_sizes(random, devices)
        spec = NodeSpec(id="n", pool="p", gpus=devices, islands=islands, nics=nics)
        gpus = random.randint(1, free.bit_count())
        workers = random.randint(1, free.bit_count() // gpus)
        assert devices_for(free, spec, gpus, workers) == naive_split(free, spec, gpus, workers)


def calls_for(islands: int) -> int:
    """How many functions are called to give each of so many islands of one device a worker."""
    spec = NodeSpec(id="n", pool="p", gpus=islands, islands=(1,) * islands, nics=(1,) * islands)
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        devices_for((1 << islands) - 1, spec, 1, islands)
    finally:
        sys.setprofile(None)
    return calls


def test_twice_the_workers_on_twice_the_islands_take_twice_the_work() -> None:
    assert calls_for(400) < 2.5 * calls_for(200)
