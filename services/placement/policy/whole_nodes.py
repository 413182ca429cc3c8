"""How much an exclusive job takes: whole nodes. The GPUs beside its workers are idle and yet nobody else's to have.

The nodes that hold it with the fewest GPUs are chosen kind by kind, those first that have the fewest for each worker
that they hold, and of equals the larger ones. Another choice is looked for as long as it may take less. What is found
so is the least: by that a job is told that it is never allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from services.placement.policy.ever import goes_to_several_pools, reach_of, workers_on
from services.placement.policy.filling import fullest, places_of_gang
from services.placement.policy.fit import Room
from services.placement.policy.policies import Places
from shared.cluster.capacity import PoolCapacity
from shared.cluster.hardware import hardware_of
from shared.cluster.marks import allowed
from shared.cluster.node import lowest_of
from shared.cluster.state import CellState
from shared.cluster.taken_alone import healthy_milli
from shared.events.value import replace
from shared.events.values import GPU, JobSpec, Wish, WorkerPlace


class _Offer(NamedTuple):
    """Empty nodes that are alike, as a mask over a pool's numbers: each has so many GPUs and holds so many workers."""

    gpus: int
    workers: int
    nodes: int


def takes_milli(state: CellState, spec: JobSpec, gpu_type: str) -> int:
    """The milli-GPUs of this type that others cannot have once the whole job runs on such: what it asks for, or all
    healthy ones of its nodes if it is alone there, at the least, were all nodes empty that no person has closed.
    """
    if not spec.exclusive:
        return spec.gpus_milli
    typed = spec if spec.gpu_type == gpu_type else replace(spec, gpu_type=gpu_type)
    reach = reach_of(state, typed)
    offers = [_offers(state, state.pools[name], typed, mask) for name, mask in reach.items()]
    if goes_to_several_pools(spec):
        offers = [[offer for each in offers for offer in each]]
    chosen = [found for each in offers if (found := _cheapest(each, spec.workers))]
    return min((sum(each.gpus * many * GPU for each, many in found) for found in chosen), default=spec.gpus_milli)


def whole_by_type(state: CellState, places: Iterable[WorkerPlace]) -> dict[str, int]:
    """The healthy milli-GPUs of each type on the nodes of these places."""
    found: dict[str, int] = {}
    for node_id in dict.fromkeys(place.node for place in places):
        node = state.nodes[node_id]
        found[node.spec.gpu_type] = found.get(node.spec.gpu_type, 0) + healthy_milli(node)
    return found


def cheapest_places(state: CellState, pool: PoolCapacity, spec: JobSpec) -> Places | None:
    """Places for an exclusive job on the nodes of a pool with the fewest GPUs that hold it now, whatever the policy
    would choose; None where there are none, or where the job requires a place in the network.
    """
    if spec.topology is not None and spec.topology.wish is Wish.REQUIRED:
        return None
    free, usable = 0, allowed(state, pool, spec)
    for nodes in pool.by_free.values():
        free |= nodes
    offers = _offers(state, pool, spec, free if usable is None else free & usable)
    among = 0
    for offer, many in _cheapest(offers, spec.workers):
        among |= lowest_of(offer.nodes, many)
    return places_of_gang(Room.of(state, pool, spec, among), spec, fullest) if among else None


def _offers(state: CellState, pool: PoolCapacity, spec: JobSpec, among: int) -> list[_Offer]:
    """Those of these nodes that no person has closed and that hold a worker of the job when they are empty."""
    hardware = hardware_of(state, pool)
    among &= ~hardware.closed
    found = [
        _Offer(kind.gpus, workers_on(kind, spec.resources, spec.gpu_type), nodes & among)
        for kind, nodes in hardware.kinds.items()
    ]
    return [offer for offer in found if offer.workers and offer.nodes]


CHOICES_MOST = 500
"""So many choices at most are looked at; of pools with so many kinds of nodes that there are more, the best of these
is taken.
"""


def _cheapest(offers: Sequence[_Offer], workers: int) -> list[tuple[_Offer, int]]:
    """How many nodes of each hold so many workers with the fewest GPUs; none where all of them do not."""
    if sum(offer.workers * offer.nodes.bit_count() for offer in offers) < workers:
        return []
    by_price = sorted(offers, key=lambda offer: (Fraction(offer.gpus, offer.workers), -offer.gpus))
    choice = _Choice([(offer.gpus, offer.workers, offer.nodes.bit_count()) for offer in by_price])
    choice.look(0, workers, 0, ())
    return [(offer, many) for offer, many in zip(by_price, choice.best, strict=False) if many]


class _Choice:
    """The choice of nodes with the fewest GPUs. `kinds` are the GPUs and workers of a node, and how many there are;
    those that have the fewest GPUs for each worker come first.
    """

    def __init__(self, kinds: Sequence[tuple[int, int, int]]) -> None:
        self._kinds = kinds
        self._looks = 0
        self._fewest: int | None = None
        self.best: tuple[int, ...] = ()

    def look(self, at: int, workers: int, gpus: int, chosen: tuple[int, ...]) -> None:
        """Go on from `at` with so many workers that have no node yet, beside what is chosen, which has these GPUs."""
        self._looks += 1
        if workers <= 0:
            self._fewest, self.best = gpus, chosen
        if workers <= 0 or at == len(self._kinds):
            return
        each_gpus, each_workers, count = self._kinds[at]
        for many in range(min(count, -(-workers // each_workers)), -1, -1):
            left, taken = workers - many * each_workers, gpus + many * each_gpus
            if self._looks >= CHOICES_MOST:
                return
            if not self._is_beaten(at + 1, left, taken):
                self.look(at + 1, left, taken, (*chosen, many))
            elif left >= 0:
                return  # with fewer of these nodes more have to be of a dearer kind

    def _is_beaten(self, at: int, workers: int, gpus: int) -> bool:
        """Whether no choice that goes on so has fewer GPUs than the best: not even with parts of nodes."""
        for each_gpus, each_workers, count in self._kinds[at:]:
            if workers <= 0:
                break
            taken = min(workers, count * each_workers)
            gpus += -(-taken * each_gpus // each_workers) if taken == workers else count * each_gpus
            workers -= taken
        return workers > 0 or (self._fewest is not None and gpus >= self._fewest)
