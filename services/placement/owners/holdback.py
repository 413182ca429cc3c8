"""What is kept for owners that wait, and from which jobs: these look for places beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fallow.services.placement.owners.kept_index import KeptFrom, kept_in
from fallow.services.placement.policy.placement_policy import Places
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.search.beside_kept import search_beside
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT, Taking
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.reasons import PendingReason

Search = Callable[[CellState, PoolCapacity], Places | None]

LOOKS_MAX = 4
"""So often a search that comes by kept places is made again with what is kept there alone."""


def off_kept_places(
    state: CellState, pool: PoolCapacity, spec: JobSpec, places: Places, search: Search, fewest_milli: int
) -> Places | PendingReason:
    """The places that a search has found in a pool, if none is on a node where something is kept; else what `search`
    finds while the kept places count as in use. If it finds nothing, a job that would borrow from an owner waits as
    `reserved_for_other`, and any other job has the first places. `fewest_milli`: with fewer whole GPUs than that free
    the search would find nothing.
    """
    return next(each_off_kept_places(state, pool, spec, places, search, fewest_milli), PendingReason.RESERVED_FOR_OTHER)


def each_off_kept_places(
    state: CellState, pool: PoolCapacity, spec: JobSpec, places: Places, search: Search, fewest_milli: int
) -> Iterator[Places]:
    """The places that the job may have so, the best first: those that leave most of what is kept alone."""
    if not any(place.node in state.tree.kept.nodes for place in places):
        yield places
        return
    kept = KeptFrom(state, kept_in(state, pool), spec)
    if kept.places:
        look = _Look(state, pool, spec, kept, search, fewest_milli)
        found = look.beside(places, borrowed=False)
        if found is not None:
            yield found
        found = look.beside(places, borrowed=True) if 0 < kept.borrowed_places < kept.places else None
        if found is not None:
            yield found
    if not kept.borrowed_places:
        yield places


@contextmanager
def nothing_kept(state: CellState) -> Iterator[None]:
    """While this lasts nothing counts as kept, to see whether that is all that a job lacks."""
    kept, state.tree.kept = state.tree.kept, NOTHING_KEPT
    try:
        yield
    finally:
        state.tree.kept = kept


class _Look(NamedTuple):
    """A look for places of a job beside what is kept from it."""

    state: CellState
    pool: PoolCapacity
    spec: JobSpec
    kept: KeptFrom
    search: Search
    fewest_milli: int

    def beside(self, places: Places, *, borrowed: bool) -> Places | None:
        """What the search finds beside all that is kept, or beside what the job would borrow, if it is `borrowed`.

        What is kept counts as in use where the search comes by: first where it found these places, then where it goes
        instead, and after a few nodes everywhere.
        """
        devices = self.kept.borrowed_devices if borrowed else self.kept.devices
        if (self.pool.free_whole - devices) * GPU < self.fewest_milli:
            return None  # nearly always, and soon: all else is in use
        looked_at, found, taking = dict[str, None](), places, Taking(self.state)
        try:
            for _ in range(LOOKS_MAX):
                new = [node for node in dict.fromkeys(place.node for place in found) if node not in looked_at]
                if not self._take(taking, new, borrowed=borrowed):
                    return found
                looked_at |= dict.fromkeys(new)
                again = self.search(self.state, self.pool)
                if again is None:
                    return None
                found = again
            if self._needs_every_place(borrowed=borrowed):
                self._take(taking, [node for node in self.kept.nodes() if node not in looked_at], borrowed=borrowed)
                return self.search(self.state, self.pool)
        finally:
            taking.close()
        own = {node_id: self.kept.on(node_id, borrowed=False) for node_id in self.kept.own_nodes()}
        return search_beside(self.state, self.pool, self.kept.index, own, self.search)

    def _take(self, taking: Taking, nodes: Iterable[str], *, borrowed: bool) -> bool:
        """Let what is kept on these nodes count as in use. Whether there is any."""
        kept = [place for node in nodes for place in self.kept.on(node, borrowed=borrowed)]
        if kept:
            taking.take(kept, by_all=self.spec.exclusive)
            self.state.capacity.pools()
        return bool(kept)

    def _needs_every_place(self, *, borrowed: bool) -> bool:
        """Whether each kept place must be looked at for this job: the second set of nodes would not do for it."""
        is_part = borrowed and self.kept.borrowed_places < self.kept.places
        return is_part or self.spec.exclusive or POLICIES[self.state.policy.placement].learns
