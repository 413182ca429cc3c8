"""FGD's measure of fragmentation (Weng et al., USENIX ATC 2023): how much of what is free is of no use to the pods that
usually come.

For one kind of pod, all free GPU of a node is a fragment where the pod does not fit there, for want of GPU, CPU or the
right type, or because it needs no GPU at all; where it fits, what is free on devices with less than it wants. A node's
fragment is the mean over the kinds by their share of the trace. Kinds count from the most frequent one until they are
95 % of all pods. Memory does not count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fallow.bench.openb.files import Pod
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.fields.values import GPU

POPULAR_PCT = 95
REMEMBERED_MAX = 200_000

Lefts = tuple[int, ...]
"""The milli-GPUs free on each device of a node, in the order of the devices."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of pods of one GPU request and one set of types: how much CPU they want, and how many pods want at most
    so much.
    """

    gpus: int
    milli: int
    types: tuple[str, ...]
    cpus: Sequence[int]
    counts: Sequence[int]


class Fragments:
    """The measure for the pods of one trace. Amounts are milli-GPUs times `total`, so that they are whole numbers."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        popular = _popular(pods)
        self.total = sum(popular.values())
        groups: dict[tuple[int, int, tuple[str, ...]], dict[int, int]] = {}
        for (gpu_milli, cpu, types), count in popular.items():
            key = (-(-gpu_milli // GPU), min(gpu_milli, GPU), types)
            groups.setdefault(key, {})[cpu] = count
        self._without = 0
        self._kinds: list[Kinds] = []
        for (gpus, milli, types), by_cpu in sorted(groups.items()):
            cpus = sorted(by_cpu)
            if not gpus:
                self._without = sum(by_cpu.values())
                continue
            counts = [0, *accumulate(by_cpu[cpu] for cpu in cpus)]
            self._kinds.append(Kinds(gpus, milli, types, cpus, counts))
        self._of_type: dict[str, list[Kinds]] = {}
        self._barred: dict[str, int] = {}
        self._known: dict[tuple[str, int, Lefts], int] = {}

    def of(self, node: Node) -> int:
        """The fragment of a node as it is."""
        return self.amount(node.spec.gpu_type, node.spec.cpu_milli - node.cpu_used, lefts_of(node))

    def amount(self, gpu_type: str, cpu_free: int, lefts: Lefts) -> int:
        """The fragment of a node with so much CPU free and so much on each device."""
        key = (gpu_type, cpu_free, lefts)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            known = self._known[key] = self._amount(gpu_type, cpu_free, sorted(lefts))
        return known

    def _amount(self, gpu_type: str, cpu_free: int, lefts: list[int]) -> int:
        left = sum(lefts)
        if not left:
            return 0
        kinds = self._of_type.get(gpu_type)
        if kinds is None:
            kinds = self._of_type[gpu_type] = [k for k in self._kinds if not k.types or gpu_type in k.types]
            barred = sum(k.counts[-1] for k in self._kinds) - sum(k.counts[-1] for k in kinds)
            self._barred[gpu_type] = self._without + barred
        found = self._barred[gpu_type] * left
        below, many = [0, *accumulate(lefts)], len(lefts)
        for kind in kinds:
            every = kind.counts[-1]
            lesser = bisect_right(lefts, kind.milli - 1)
            if many - lesser < kind.gpus:
                found += every * left
                continue
            fits = kind.counts[bisect_right(kind.cpus, cpu_free)]
            found += fits * below[lesser] + (every - fits) * left
        return found


def lefts_of(node: Node) -> Lefts:
    """How much is free on each device of a node."""
    shares, free = node.shares, node.free
    return tuple(
        [shares[d] if d in shares else GPU if free >> d & 1 else 0 for d in range(node.spec.gpus)]
        if shares
        else [GPU if free >> d & 1 else 0 for d in range(node.spec.gpus)]
    )


def _popular(pods: Iterable[Pod]) -> dict[tuple[int, int, tuple[str, ...]], int]:
    counts: dict[tuple[int, int, tuple[str, ...]], int] = {}
    for pod in pods:
        kind = (pod.gpu_milli, pod.cpu_milli, pod.types)
        counts[kind] = counts.get(kind, 0) + 1
    total, chosen, so_far = sum(counts.values()), dict[tuple[int, int, tuple[str, ...]], int](), 0
    for kind in sorted(counts, key=lambda kind: (-counts[kind], kind)):
        if so_far * 100 >= total * POPULAR_PCT:
            break
        chosen[kind] = counts[kind]
        so_far += counts[kind]
    return chosen
