"""How a job is kept off kept places, the slow way: in the end each of them counts as in use while it is tried.

The oracle of the searches. What is kept from the job it is told by the index of what is kept, of which `counts` in
naive_keeping holds that it is the one made from nothing, and `judge_kept_from` that it tells of each place what the
quotas say of its home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from fallow.services.placement.owners.holdback import LOOKS_MAX
from fallow.services.placement.owners.kept_index import KeptFrom, kept_in
from fallow.services.placement.policy.placement_policy import Places
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import KeptPlace, taken
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.room import Borrower
from fallow.shared.events.fields.values import GPU, JobSpec
from fallow.shared.events.reasons import PendingReason

Search = Callable[[CellState, PoolCapacity], Places | None]


def off_kept_places_one_by_one(
    state: CellState, pool: PoolCapacity, spec: JobSpec, places: Places, search: Search, fewest_milli: int
) -> Places | PendingReason:
    """The places that a search has found in a pool, if none is on a node where something is kept; else what `search`
    finds while the kept places count as in use. If it finds nothing, a job that would borrow from an owner waits as
    `reserved_for_other`, and any other job has the first places. `fewest_milli`: with fewer whole GPUs than that free
    the search would find nothing.
    """
    if not any(place.node in state.tree.kept.nodes for place in places):
        return places
    kept = KeptFrom(state, kept_in(state, pool), spec)
    if kept.places:
        look = _Look(state, pool, spec, kept, search, fewest_milli)
        found = look.beside(places, borrowed=False)
        if found is None and 0 < kept.borrowed_places < kept.places:
            found = look.beside(places, borrowed=True)
        if found is not None:
            return found
    return PendingReason.RESERVED_FOR_OTHER if kept.borrowed_places else places


def judge_kept_from(state: CellState, pool: str, spec: JobSpec) -> bool:
    """Whether the index tells what is kept from a job in a pool as one who looks at place by place. Whether the job
    would borrow some of it only.
    """
    kept = KeptFrom(state, kept_in(state, state.pools[pool]), spec)
    for borrowed in (False, True):
        places = _kept_from(state, pool, spec, borrowed=borrowed)
        numbers = (len(places), sum(_free_of(state, place) for place in places))
        assert numbers == (
            (kept.borrowed_places, kept.borrowed_devices) if borrowed else (kept.places, kept.devices)
        ), (spec, borrowed)
        told = [place for node in kept.nodes() for place in kept.on(node, borrowed=borrowed)]
        assert _by_node(told) == _by_node(places), (spec, borrowed)
    return 0 < kept.borrowed_places < kept.places


def _kept_from(state: CellState, pool: str, spec: JobSpec, *, borrowed: bool) -> list[KeptPlace]:
    """What is at home neither at the job's tenant nor above it; if it is `borrowed` only that which the job would
    borrow: where something is kept for its own tenant too, or for one above it, what is guaranteed whole.
    """
    found, tree = list[KeptPlace](), state.tree
    for each in tree.kept.all:
        for place, home in each.homes():
            above = accounts(state.quotas, spec.tenant, home[1])
            if place.pool != pool or home in above:
                continue
            waits = any(account in tree.kept.owners for account in above)
            borrows = Borrower(tree, spec.tenant, home[1], spec.gpus_milli).borrows_from(home)
            if borrowed and each.is_lent and _gives_back(state, spec):
                continue
            if not borrowed or (borrows and (each.is_whole or not waits)):
                found.append(place)
    return found


def _gives_back(state: CellState, spec: JobSpec) -> bool:
    """Whether one that borrows is stopped for the owner: a gang that may be, of a line in which each is reclaimable."""
    types = {node.spec.gpu_type for node in state.nodes.values()}
    line = [account for gpu_type in types for account in accounts(state.quotas, spec.tenant, gpu_type)]
    refuse = [account for account in line if account in state.quotas and not state.quotas[account].reclaimable]
    return state.policy.preemption.value != "off" and spec.gang and spec.preemptible and not refuse


def _free_of(state: CellState, place: KeptPlace) -> int:
    """How many of its devices are free."""
    node = state.nodes[place.node]
    return (place.devices & node.free).bit_count() if node.is_schedulable else 0


def _by_node(places: Iterable[KeptPlace]) -> dict[str, tuple[object, ...]]:
    """What of each node these are together."""
    by_node: dict[str, list[KeptPlace]] = {}
    for place in places:
        by_node.setdefault(place.node, []).append(place)
    return {node: _together(here) for node, here in by_node.items()}


def _together(places: Sequence[KeptPlace]) -> tuple[object, ...]:
    devices = 0
    for place in places:
        devices |= place.devices
    cpu_milli, memory_mib = sum(place.cpu_milli for place in places), sum(place.memory_mib for place in places)
    shares = sorted((place.device, place.share_milli) for place in places if place.share_milli)
    return devices, cpu_milli, memory_mib, any(place.is_alone for place in places), shares


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
        looked_at, found = dict[str, None](), places
        with ExitStack() as in_use:
            for _ in range(LOOKS_MAX):
                new = [node for node in dict.fromkeys(place.node for place in found) if node not in looked_at]
                if not self._take(in_use, new, borrowed=borrowed):
                    return found
                looked_at |= dict.fromkeys(new)
                again = self.search(self.state, self.pool)
                if again is None:
                    return None
                found = again
            self._take(in_use, [node for node in self.kept.nodes() if node not in looked_at], borrowed=borrowed)
            return self.search(self.state, self.pool)

    def _take(self, in_use: ExitStack, nodes: Iterable[str], *, borrowed: bool) -> bool:
        """Let what is kept on these nodes count as in use. Whether there is any."""
        kept = [place for node in nodes for place in self.kept.on(node, borrowed=borrowed)]
        if kept:
            in_use.enter_context(taken(self.state, kept, by_all=self.spec.exclusive))
            self.state.capacity.pools()
        return bool(kept)
