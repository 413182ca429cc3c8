"""What is kept in a pool, looked up by the tenant that asks: so a try to place a job costs as much as its tenant stands
deep in the tree, and not as much as there are owners.

A place is kept for the owners of one job, which stand one above the other. It is at **home** at the lowest of them for
which it is kept: then it is kept from all tenants but this owner and those below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fallow.services.placement.owners.lending import is_given_back
from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import Kept, KeptPlace, KeptPlaces
from fallow.shared.cluster.quota.room import Borrower, lineage
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.values import JobSpec

KEPT = "kept"
"""The name of this view of a pool."""


class Tally:
    """How many places these are, and how many whole devices of them are free now, by the kind of what is kept."""

    __slots__ = ("devices", "places")

    def __init__(self) -> None:
        self.places, self.devices = [0] * 4, [0] * 4

    def of(self, *, whole: bool, unlent: bool = False) -> tuple[int, int]:
        """The places and the devices: with `whole` those of jobs that are guaranteed whole only, with `unlent` without
        those that are lent.
        """
        kinds = _KINDS[whole, unlent]
        return sum([self.places[kind] for kind in kinds]), sum([self.devices[kind] for kind in kinds])


def _kind_of(kept: Kept) -> int:
    return 2 * kept.is_whole + kept.is_lent


_KINDS = {(False, False): (0, 1, 2, 3), (True, False): (2, 3), (False, True): (0, 2), (True, True): (2,)}
"""The kinds that count, by whether only whole ones do, and only those that are not lent."""


class _Entry:
    """One place in the index: in which tallies it counts, and with how many devices that are free."""

    __slots__ = ("free", "home", "is_lent", "is_whole", "kind", "place", "tallies")

    def __init__(self, place: KeptPlace, home: Account, tallies: Sequence[Tally], kept: Kept) -> None:
        self.place, self.home, self.tallies, self.free = place, home, tallies, 0
        self.is_whole, self.is_lent, self.kind = kept.is_whole, kept.is_lent, _kind_of(kept)
        for tally in tallies:
            tally.places[self.kind] += 1

    def count(self, free_devices: int) -> None:
        """These devices of the node are free now."""
        free = (self.place.devices & free_devices).bit_count()
        more, self.free = free - self.free, free
        if more:
            for tally in self.tallies:
                tally.devices[self.kind] += more

    def leave(self) -> None:
        """It is kept no more."""
        self.count(0)
        for tally in self.tallies:
            tally.places[self.kind] -= 1


class KeptSum:
    """Several places on one node as one: whole devices with CPUs and memory. Shares of devices stay apart."""

    __slots__ = ("alone", "cpu_milli", "devices", "memory_mib", "places", "shares")

    def __init__(self) -> None:
        self.devices = self.cpu_milli = self.memory_mib = self.alone = self.places = 0
        self.shares: list[KeptPlace] = []

    def add(self, place: KeptPlace) -> None:
        """One more."""
        self.places += 1
        if place.share_milli:
            self.shares.append(place)
            return
        self.devices |= place.devices
        self.cpu_milli += place.cpu_milli
        self.memory_mib += place.memory_mib
        self.alone += place.is_alone

    def remove(self, place: KeptPlace) -> None:
        """One less: this very one."""
        self.places -= 1
        if place.share_milli:
            self.shares = [each for each in self.shares if each is not place]
            return
        self.devices &= ~place.devices
        self.cpu_milli -= place.cpu_milli
        self.memory_mib -= place.memory_mib
        self.alone -= place.is_alone

    def without(self, others: Sequence[KeptSum], on: KeptPlace) -> list[KeptPlace]:
        """The places less these, which are among them; `on` is any place on the node."""
        devices, cpu, memory, alone, shares = self.devices, self.cpu_milli, self.memory_mib, self.alone, self.shares
        for other in others:
            devices, alone = devices & ~other.devices, alone - other.alone
            cpu, memory = cpu - other.cpu_milli, memory - other.memory_mib
            if other.shares:
                shares = [place for place in shares if not any(place is each for each in other.shares)]
        if not (devices or cpu or memory or alone):
            return shares
        return [KeptPlace(on.node, on.pool, devices, 0, 0, cpu, memory, alone > 0), *shares]


class _OnNode:
    """What is kept on one node."""

    __slots__ = ("by_home", "entries", "free_devices", "sum")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.sum = KeptSum()
        self.by_home: dict[Account, KeptSum] = {}
        self.free_devices = 0

    def add(self, entry: _Entry) -> None:
        """One more place."""
        self.entries.append(entry)
        self.sum.add(entry.place)
        self.by_home.setdefault(entry.home, KeptSum()).add(entry.place)

    def remove(self, place: KeptPlace) -> None:
        """One place less: this very one."""
        entry = next(each for each in self.entries if each.place is place)
        self.entries = [each for each in self.entries if each is not entry]
        self.free_devices &= ~place.devices
        entry.leave()
        for found in (self.sum, self.by_home[entry.home]):
            found.remove(place)
        if not self.by_home[entry.home].places:
            del self.by_home[entry.home]

    def count(self, node: Node) -> None:
        """The node may have changed: mostly none of the devices that are kept."""
        free = node.free & self.sum.devices if node.is_schedulable else 0
        changed, self.free_devices = self.free_devices ^ free, free
        if changed:
            for entry in self.entries:
                if entry.place.devices & changed:
                    entry.count(free)


class KeptIndex:
    """The index over what is kept in one pool."""

    def __init__(self, state: CellState, pool: PoolCapacity, kept: KeptPlaces) -> None:
        self.kept, self.is_stale = kept, False
        self.all: dict[str, Tally] = {}
        """What is kept of each GPU type."""
        self.at_home: dict[Account, Tally] = {}
        self.below: dict[Account, Tally] = {}
        """What is at home below an account."""
        self.on: dict[str, _OnNode] = {}
        self.nodes_of: dict[Account, dict[str, None]] = {}
        """The nodes on which anything is at home at an account."""
        self.moved: dict[str, None] = {}
        """Nodes on which other places are kept than when a caller took them out here."""
        self._noted: dict[str, Node] = {}
        for each in kept.all:
            for place, home in _homes_in(pool, each):
                self._add(state, place, home, each)
        for node_id, on in self.on.items():
            on.count(state.nodes[node_id])

    def carry_over(
        self, state: CellState, pool: PoolCapacity, kept: KeptPlaces, gone: Iterable[Kept], new: Iterable[Kept]
    ) -> None:
        """Become the index over what is kept now: what is gone of what was kept before, and what is new."""
        self.kept = kept
        for each in gone:
            for place, home in _homes_in(pool, each):
                self._remove(place, home)
        for each in new:
            for place, home in _homes_in(pool, each):
                self._add(state, place, home, each)
                self._noted[place.node] = state.nodes[place.node]

    def _add(self, state: CellState, place: KeptPlace, home: Account, kept: Kept) -> None:
        tallies = [self.all.setdefault(home[1], Tally()), self.at_home.setdefault(home, Tally())]
        above = lineage(state.tree.branches.get(home))[1:]
        tallies += [self.below.setdefault(each.account, Tally()) for each in above]
        on = self.on.get(place.node)
        if on is None:
            on = self.on[place.node] = _OnNode()
        on.add(_Entry(place, home, tallies, kept))
        self.nodes_of.setdefault(home, {})[place.node] = None
        self.moved[place.node] = None

    def _remove(self, place: KeptPlace, home: Account) -> None:
        on = self.on[place.node]
        on.remove(place)
        self.moved[place.node] = None
        if home not in on.by_home:
            del self.nodes_of[home][place.node]
        if not on.entries:
            del self.on[place.node]
            self._noted.pop(place.node, None)

    def kept_on(self, node_id: str) -> list[KeptPlace]:
        """All that is kept on a node."""
        on = self.on.get(node_id)
        return [] if on is None else on.sum.without((), on.entries[0].place)

    def note(self, node: Node, _free: int) -> None:
        """The node may have changed."""
        if node.spec.id in self.on:
            self._noted[node.spec.id] = node

    def settle(self) -> None:
        """Count the nodes that have changed."""
        for node_id, node in self._noted.items():
            self.on[node_id].count(node)
        self._noted.clear()


def _homes_in(pool: PoolCapacity, kept: Kept) -> Iterator[tuple[KeptPlace, Account]]:
    """The places of one job in this pool, each with its home."""
    for place, home in kept.homes():
        number = pool.number(place.node)
        if number < len(pool.ids) and pool.ids[number] == place.node:
            yield place, home


def carry_over(state: CellState, before: KeptPlaces, gone: Sequence[Kept], new: Sequence[Kept]) -> None:
    """What is kept is other places than before: bring the indices to it that are in use, unless it is so
    much that they are sooner made anew.
    """
    kept = state.tree.kept
    if len(gone) + len(new) > len(kept.all):
        return
    for pool in state.pools.values():
        found = pool.views.get(KEPT)
        if isinstance(found, KeptIndex) and found.kept is before:
            found.carry_over(state, pool, kept, gone, new)


def kept_in(state: CellState, pool: PoolCapacity) -> KeptIndex:
    """The index over what is kept in this pool now."""
    kept, found = state.tree.kept, pool.views.get(KEPT)
    if not isinstance(found, KeptIndex) or found.kept is not kept:
        found = pool.views[KEPT] = KeptIndex(state, pool, kept)
    found.settle()
    return found


class _Asker(NamedTuple):
    """The tenant that asks, as a borrower of one GPU type; whether it waits for something kept too, and whether its job
    gives back what it borrows.
    """

    borrower: Borrower
    waits: bool
    gives_back: bool


class KeptFrom:
    """What is kept in a pool from one job: what it would borrow there, and what it may take, since it uses what is its
    own, or lent to a job that gives it back. A job that waits for its own guarantee too keeps nothing from one that is
    not guaranteed whole, nor the other way round.
    """

    def __init__(self, state: CellState, index: KeptIndex, spec: JobSpec) -> None:
        self.index = index
        self._by_type: dict[str, _Asker] = {}
        gives_back = is_given_back(state, spec)
        for gpu_type in index.all:
            borrower = Borrower(state.tree, spec.tenant, gpu_type, spec.gpus_milli)
            waits = any(above in index.kept.owners for above in borrower.above)
            self._by_type[gpu_type] = _Asker(borrower, waits, gives_back)
        self.places, self.devices = self._sum(borrowed=False)
        self.borrowed_places, self.borrowed_devices = self._sum(borrowed=True)

    def _sum(self, *, borrowed: bool) -> tuple[int, int]:
        places = devices = 0
        for gpu_type, (borrower, waits, gives_back) in self._by_type.items():
            whole, unlent = borrowed and waits, borrowed and gives_back
            tallies = self._tallies(gpu_type, borrower, borrowed=borrowed)
            sign = 1
            for tally in tallies:
                of = tally.of(whole=whole, unlent=unlent)
                places, devices, sign = places + sign * of[0], devices + sign * of[1], -1
        return places, devices

    def _tallies(self, gpu_type: str, borrower: Borrower, *, borrowed: bool) -> Iterator[Tally]:
        """What is kept from any tenant there, and then what is at home at the tenant or above it, which is not."""
        index, scope = self.index, borrower.fits_in if borrowed else None
        base = index.all.get(gpu_type) if scope is None else index.below.get(scope)
        if base is None:
            return
        yield base
        for above in borrower.above:
            if above == scope:
                return
            if above in index.at_home:
                yield index.at_home[above]

    def on(self, node_id: str, *, borrowed: bool) -> list[KeptPlace]:
        """The places on a node; those only that the job would borrow, if it is `borrowed`."""
        on = self.index.on.get(node_id)
        if on is None:
            return []
        if borrowed and self.borrowed_places < self.places:
            return [entry.place for entry in on.entries if self._is_borrowed(entry)]
        own = [
            on.by_home[above]
            for borrower, *_ in self._by_type.values()
            for above in borrower.above
            if above in on.by_home
        ]
        return on.sum.without(own, on.entries[0].place)

    def own_nodes(self) -> dict[str, None]:
        """The nodes on which anything is kept that it may take."""
        above = [each for borrower, *_ in self._by_type.values() for each in borrower.above]
        return {node_id: None for each in above for node_id in self.index.nodes_of.get(each, ())}

    def nodes(self) -> Iterator[str]:
        """The nodes on which anything is kept from any tenant."""
        return iter(self.index.on)

    def _is_borrowed(self, entry: _Entry) -> bool:
        borrower, waits, gives_back = self._by_type[entry.home[1]]
        if entry.is_lent and gives_back:
            return False
        return not borrower.is_below(entry.home) and (entry.is_whole or not waits) and borrower.borrows_from(entry.home)
