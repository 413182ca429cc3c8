"""What free room on a node is worth less than it seems, by what jobs usually ask for.

A score in the spirit of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), which asks how much of a node's
free GPUs the usual jobs could not use. Here the loss of a node is the sum of four, in thousandths of a milli-GPU:

- rests: what will be left in the end of each device in part use, if shares come to it as they usually do (`rest`);
- stranded: the free GPUs for which CPUs or memory will not last, if each is used by the usual jobs (`stranded`);
- broken: the whole free devices that jobs of several GPUs cannot use, since they are no multiple of what these want;
- wanted: minus what is free on nodes that many want who can go nowhere else, so that others go elsewhere (`wanted`).

A worker goes where it adds the least loss. Losses that differ by less than `QUANTUM` are alike: then it goes to the
node with the least room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from fallow.services.placement.policy.frag_aware.demand import Demand, Kind, ResourceRequest
from fallow.shared.events.fields.values import GPU

SCALE = 1_000
"""Parts of a milli-GPU in which losses are counted."""

QUANTUM = 30 * SCALE
RARE = 10
"""A rest to which less than one of so many shares could come is rather left than filled."""

BROKEN_PART, WANTED_PART, MEMORY_PART = 10, 2, 2
"""Of the loss by broken nodes counts a tenth: breaks are repaired by the next small job. Of what others want, and of
memory, which is not short as often, counts half.
"""


class Losses:
    """The losses on nodes of one kind."""

    def __init__(self, demand: Demand, kind: Kind) -> None:
        asks = demand.at(kind)
        self.rest = rests(_shares(asks))
        self._by_cpu = Stranding((ask.cpu_milli, ask.gpu_milli, many) for ask, many in asks)
        self._by_memory = Stranding((ask.memory_mib, ask.gpu_milli, many) for ask, many in asks)
        self._gangs = _several(asks)
        self._all_milli = sum(ask.gpu_milli * many for ask, many in asks)
        self._broken: dict[int, int] = {}
        self.wanted = demand.pressure(kind, SCALE) // WANTED_PART
        """How much each free milli-GPU is wanted by those who can go nowhere else."""

    def stranded(self, gpu_milli: int, cpu_milli: int, memory_mib: int) -> int:
        """The part of these free GPUs for which so much CPU and memory will not last."""
        if not gpu_milli:
            return 0
        return self._by_cpu.of(gpu_milli, cpu_milli) + self._by_memory.of(gpu_milli, memory_mib) // MEMORY_PART

    def broken(self, whole: int) -> int:
        """The part of so many whole free devices of one node that jobs of several GPUs cannot use."""
        known = self._broken.get(whole)
        if known is None:
            known = 0
            if self._gangs:
                lost = sum(milli * (whole % gpus) for gpus, milli in self._gangs.items())
                known = lost * GPU * SCALE // (self._all_milli * BROKEN_PART)
            self._broken[whole] = known
        return known


class Stranding:
    """How many free GPUs will find no CPU (or memory), by how much the usual jobs want of it for each GPU."""

    def __init__(self, wants: Iterable[tuple[int, int, int]]) -> None:
        """`wants` are of each ask the CPU, the milli-GPUs, and how many workers ask so."""
        weights: dict[int, int] = {}
        for much, gpu_milli, many in wants:
            for_a_gpu = much * GPU // gpu_milli
            if for_a_gpu:
                weights[for_a_gpu] = weights.get(for_a_gpu, 0) + gpu_milli * many
            else:
                weights[0] = weights.get(0, 0) + gpu_milli * many
        self._each = sorted(weights)
        self._all = sum(weights.values())
        self._above = _sums_from([weights[each] for each in self._each])
        self._fed = _sums_from([weights[each] * GPU * SCALE // each if each else 0 for each in self._each])

    def of(self, gpu_milli: int, much: int) -> int:
        """The mean over the asks of what is left of the GPUs when there is no more of the other."""
        at = bisect_right(self._each, much * GPU // gpu_milli)
        above = self._above[at]
        return (gpu_milli * above * SCALE - much * self._fed[at]) // self._all if above else 0


def rests(shares: Mapping[int, int]) -> list[int]:
    """What will be left in the end of a device of which so many milli-GPUs are free, 0 to 1000. A whole one is no rest.

    Shares come at random, by how often they are asked for, and those that fit are put there. Where only few would fit,
    in part nothing comes.
    """
    every = sum(shares.values())
    sizes = sorted(shares.items())
    found = [0] * (GPU + 1)
    for free in range(1, GPU):
        fitting, left = 0, 0
        for size, many in sizes:
            if size > free:
                break
            fitting += many
            left += many * found[free - size]
        nothing = max(every - RARE * fitting, 0)
        found[free] = (RARE * left + nothing * free * SCALE) // (RARE * fitting + nothing) if every else free * SCALE
    return found


def _shares(asks: Iterable[tuple[ResourceRequest, int]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for ask, many in asks:
        if ask.is_share:
            counts[ask.gpu_milli] = counts.get(ask.gpu_milli, 0) + many
    return counts


def _several(asks: Iterable[tuple[ResourceRequest, int]]) -> dict[int, int]:
    """The milli-GPUs that workers of several devices ask for, by how many devices each wants."""
    found: dict[int, int] = {}
    for ask, many in asks:
        if ask.gpu_milli > GPU:
            gpus = ask.gpu_milli // GPU
            found[gpus] = found.get(gpus, 0) + ask.gpu_milli * many
    return found


def _sums_from(values: list[int]) -> list[int]:
    """The sums from each place to the end, and 0."""
    return [*reversed(list(accumulate(reversed(values)))), 0]
