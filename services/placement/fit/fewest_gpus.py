"""Nodes with the fewest GPUs that hold so many workers of a job that is to have them alone: by kinds of nodes, those
first that have the fewest GPUs for each worker that they hold, and of equals the larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class Offer(NamedTuple):
    """Empty nodes that are alike, as a mask over a pool's numbers: each has so many GPUs and holds so many workers."""

    gpus: int
    workers: int
    nodes: int


CHOICES_MAX = 500
"""So many choices at most are looked at; of pools with so many kinds of nodes that there are more, the best of these
is taken.
"""


def cheapest(offers: Sequence[Offer], workers: int) -> list[tuple[Offer, int]]:
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
            if self._looks >= CHOICES_MAX:
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
