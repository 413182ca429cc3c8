"""Where the workers of a job that is no gang are: by rank and by node, without a search through all of them.

A job may have ten thousand workers, each of which starts, ends and is replaced by itself. The index is no part of the
state: it belongs to one tuple of workers, goes along when some enter or leave, and is built anew for any other tuple,
as after a change that was undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fallow.shared.events.fields.values import WorkerPlace

LEFT_MAX = 32
"""After so many workers have left the index is built anew: each of them makes finding a step longer."""

Workers = tuple[WorkerPlace, ...]


class WorkersIndex:
    """The index of `workers`. Workers that leave move those behind them forward, so a worker is at most so many places
    before where it was found once as have left since.
    """

    __slots__ = ("_at", "_left", "_on", "workers")

    def __init__(self, workers: Workers) -> None:
        self._build(workers)

    def _build(self, workers: Workers) -> None:
        self.workers = workers
        self._at = {place.rank: at for at, place in enumerate(workers)}
        self._left = 0
        self._on: dict[str, dict[int, WorkerPlace]] = {}
        for place in workers:
            self._on.setdefault(place.node, {})[place.rank] = place

    def position(self, rank: int) -> int | None:
        """As which of all workers this rank comes; None: it has none."""
        at = self._at.get(rank)
        if at is None:
            return None
        workers = self.workers
        at = min(at, len(workers) - 1)
        while workers[at].rank != rank:
            at -= 1
        return at

    def find(self, rank: int) -> WorkerPlace | None:
        """The worker of this rank."""
        at = self.position(rank)
        return None if at is None else self.workers[at]

    def find_all(self, ranks: Iterable[int]) -> list[WorkerPlace]:
        """The workers of these ranks, as far as there are any, in the order of all workers."""
        found = sorted(at for at in map(self.position, ranks) if at is not None)
        return [self.workers[at] for at in found]

    @property
    def nodes(self) -> Collection[str]:
        """The nodes that have any of the workers."""
        return self._on.keys()

    def on(self, node: str) -> Collection[WorkerPlace]:
        """The workers on a node, in the order of all workers."""
        here = self._on.get(node)
        return () if here is None else here.values()

    def in_order(self, nodes: Iterable[str]) -> list[str]:
        """Those of these nodes that have workers, in the order of the first worker of each."""
        first = {node: self.position(next(iter(here))) for node in nodes if (here := self._on.get(node))}
        return sorted(first, key=lambda node: first[node] or 0)

    def enter(self, places: Workers) -> Workers:
        """These come behind all others: the workers behind that."""
        for at, place in enumerate(places, len(self.workers)):
            self._at[place.rank] = at
            self._on.setdefault(place.node, {})[place.rank] = place
        self.workers += places
        return self.workers

    def leave(self, ranks: Collection[int]) -> Workers:
        """These ranks leave: the workers behind that."""
        if self._left + len(ranks) > LEFT_MAX:
            gone = {*ranks}
            self._build(tuple([place for place in self.workers if place.rank not in gone]))
            return self.workers
        rest = [*self.workers]
        for at in sorted((at for at in map(self.position, ranks) if at is not None), reverse=True):
            self._forget(rest.pop(at))
        self.workers = tuple(rest)
        return self.workers

    def _forget(self, place: WorkerPlace) -> None:
        self._left += 1
        del self._at[place.rank]
        here = self._on[place.node]
        del here[place.rank]
        if not here:
            del self._on[place.node]
