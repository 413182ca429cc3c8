"""Places that are kept for owners: tenants with a waiting job while GPUs of their guarantee are idle.

A kept place is what a worker of such a job would take of a node, as far as it is free there. Jobs that would borrow
what is guaranteed to the owner start where they fit beside it. It follows from the state and is told by the service
that places jobs; it is no part of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fallow.shared.events.fields.values import GPU

if TYPE_CHECKING:
    from fallow.shared.cluster.model.node import Node
    from fallow.shared.cluster.model.state import CellState
    from fallow.shared.cluster.quota.tree import Account


class KeptPlace(NamedTuple):
    """What is kept of one node: whole devices (a mask), or a share of one (`device`, `share_milli`), with CPUs and
    memory. `milli` is all of it in milli-GPUs; `is_alone` says that nothing else may come to the node.
    """

    node: str
    pool: str
    devices: int
    device: int
    share_milli: int
    cpu_milli: int
    memory_mib: int
    is_alone: bool

    @property
    def milli(self) -> int:
        """The milli-GPUs of it."""
        return self.devices.bit_count() * GPU + self.share_milli


class Kept(NamedTuple):
    """The places of one waiting job, and for which owners how many milli-GPUs of these are kept, from the first on.
    `is_whole` tells that the whole job is guaranteed, `is_more` that these are kept beside others on whose nodes runs
    may have no end, `is_lent` that jobs may have them from which the owner takes them back.
    """

    owners: tuple[tuple[Account, int], ...]
    places: tuple[KeptPlace, ...]
    is_whole: bool
    is_more: bool = False
    is_lent: bool = False

    def homes(self) -> Iterator[tuple[KeptPlace, Account]]:
        """The places, each with its home: the lowest of the owners for which it is kept."""
        before = 0
        for place in self.places:
            home = next((account for account, milli in self.owners if milli > before), None)
            if home is None:
                return
            yield place, home
            before += place.milli


@dataclass(slots=True)
class KeptAtHome:
    """How many milli-GPUs are kept that are at home at one owner, by whether their jobs are guaranteed whole, and
    whether they are lent. `alone` are the nodes that a job is to have alone, by whether it is guaranteed whole.
    """

    milli: dict[tuple[bool, bool], int] = field(default_factory=dict)
    alone: dict[tuple[str, bool], int] = field(default_factory=dict)

    def add(self, place: KeptPlace, kept: Kept) -> None:
        """One more place."""
        if place.is_alone:
            node = (place.node, kept.is_whole)
            self.alone[node] = self.alone.get(node, 0) + place.milli
        else:
            kind = (kept.is_whole, kept.is_lent)
            self.milli[kind] = self.milli.get(kind, 0) + place.milli


@dataclass(slots=True)
class KeptOfType:
    """What is kept of one GPU type: `milli` milli-GPUs, and by homes. `has_alone`: some of it are nodes that a job is
    to have alone, which are more than these.
    """

    milli: int = 0
    has_alone: bool = False
    homes: dict[Account, KeptAtHome] = field(default_factory=dict)

    def add(self, place: KeptPlace, home: Account, kept: Kept) -> None:
        """One more place."""
        self.milli += place.milli
        self.has_alone = self.has_alone or place.is_alone
        self.homes.setdefault(home, KeptAtHome()).add(place, kept)


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """All that is kept in a cell, on which nodes, for which owners, and how much of each GPU type at which home; but
    for what is kept beside endless runs, which is there twice.
    """

    all: tuple[Kept, ...] = ()
    nodes: frozenset[str] = field(default=frozenset(), compare=False)
    owners: frozenset[Account] = field(default=frozenset(), compare=False)
    of_types: dict[str, KeptOfType] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, kept: Sequence[Kept]) -> KeptPlaces:
        """All that is kept: so much for each waiting job."""
        nodes = frozenset(place.node for each in kept for place in each.places)
        of_types: dict[str, KeptOfType] = {}
        for each in kept:
            for place, home in () if each.is_more else each.homes():
                of_types.setdefault(home[1], KeptOfType()).add(place, home, each)
        return cls(tuple(kept), nodes, frozenset(account for each in kept for account, _ in each.owners), of_types)


NOTHING_KEPT = KeptPlaces()

InUse = tuple[int, dict[int, int], int, int, bool]
"""All of a node that changes when a kept place counts as in use."""


def in_use(node: Node) -> InUse:
    """What is in use of a node now."""
    return (node.held, node.shares, node.cpu_used, node.memory_used, node.is_full)


def put_in_use(node: Node, use: InUse) -> None:
    """Let so much of a node be in use."""
    node.held, node.shares, node.cpu_used, node.memory_used, node.is_full = use


def take_place(node: Node, place: KeptPlace, *, by_all: bool = False) -> None:
    """Let a place count as in use on its node (`Taking.take`)."""
    _, _, devices, device, share_milli, cpu_milli, memory_mib, is_alone = place
    spec, shares = node.spec, node.shares
    node.cpu_used = min(spec.cpu_milli, node.cpu_used + cpu_milli)
    node.memory_used = min(spec.memory_mib, node.memory_used + memory_mib)
    node.is_full = node.is_full or by_all or is_alone
    node.held |= devices & node.free
    if any(devices >> each & 1 for each in shares):  # by now some of it is in use, maybe the owner's
        node.shares = {each: 0 if devices >> each & 1 else milli for each, milli in shares.items()}
    if share_milli:
        free_milli = node.shares.get(device, GPU if node.free >> device & 1 else 0)
        node.shares = {**node.shares, device: max(0, free_milli - share_milli)}


class Taking:
    """Kept places that count as in use until it is closed: for a search of what fits beside them. The state is the same
    afterwards. It costs as much as so many changes of nodes.
    """

    __slots__ = ("_before", "_state")

    def __init__(self, state: CellState) -> None:
        self._state = state
        self._before: dict[str, InUse] = {}

    def take(self, places: Iterable[KeptPlace], *, by_all: bool = False) -> None:
        """These count as in use from now on. `by_all`: nothing more fits on their nodes. A device that is kept whole
        counts so when a part of it is in use by now, so that what is free beside the kept places only shrinks while
        jobs start.
        """
        nodes, noted, known = self._state.nodes, self._state.capacity.noted, self._before
        for place in places:
            node = noted[place.node] = nodes[place.node]
            if place.node not in known:
                known[place.node] = in_use(node)
            take_place(node, place, by_all=by_all)

    def close(self) -> None:
        """They are free again."""
        nodes, noted = self._state.nodes, self._state.capacity.noted
        for node_id, before in self._before.items():
            node = noted[node_id] = nodes[node_id]
            put_in_use(node, before)
        self._before = {}
        self._state.capacity.pools()


@contextmanager
def taken(state: CellState, places: Iterable[KeptPlace], *, by_all: bool = False) -> Iterator[None]:
    """While this lasts these places count as in use (`Taking`)."""
    taking = Taking(state)
    taking.take(places, by_all=by_all)
    try:
        yield
    finally:
        taking.close()
