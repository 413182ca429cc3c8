"""Places that are kept for owners: tenants of whom a job waits though GPUs of their guarantee are idle.

A kept place is what a worker of such a job would take of a node, as far as it is free there. Jobs that would borrow
what is guaranteed to the owner start where they fit beside it. It follows from the state and is told by the service
that places jobs; it is no part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.cluster.node import Node
from shared.events.values import GPU

if TYPE_CHECKING:
    from shared.cluster.quota_tree import Account
    from shared.cluster.state import CellState


@dataclass(frozen=True, slots=True)
class KeptPlace:
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


@dataclass(frozen=True, slots=True)
class Kept:
    """The places of one waiting job, and for which owners how many milli-GPUs of these are kept, from the first on.
    `is_whole` tells that the whole job is guaranteed.
    """

    owners: tuple[tuple[Account, int], ...]
    places: tuple[KeptPlace, ...]
    is_whole: bool

    def first(self, milli: int) -> Iterator[KeptPlace]:
        """The first places, until they have so much."""
        for place in self.places:
            if milli <= 0:
                return
            milli -= place.milli
            yield place


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """All that is kept in a cell, on which nodes, and for whom."""

    all: tuple[Kept, ...] = ()
    nodes: frozenset[str] = field(default=frozenset(), compare=False)
    owners: frozenset[Account] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, kept: Sequence[Kept]) -> KeptPlaces:
        """All that is kept: so much for each waiting job."""
        nodes = frozenset(place.node for each in kept for place in each.places)
        return cls(tuple(kept), nodes, frozenset(account for each in kept for account, _ in each.owners))


NOTHING_KEPT = KeptPlaces()


@contextmanager
def taken(state: CellState, places: Sequence[KeptPlace], *, by_all: bool = False) -> Iterator[None]:
    """While this lasts these places count as in use: for a search of what fits beside them. `by_all`: nothing more
    fits on their nodes. A device that is kept whole counts so when a part of it is in use by now, so that what is free
    beside the kept places only shrinks while jobs start. It costs as much as so many changes of nodes; the state is
    the same afterwards.
    """
    noted, before = state.capacity.noted, list[tuple[Node, int, dict[int, int], int, int, bool]]()
    for place in places:
        node = state.nodes[place.node]
        before.append((node, node.held, node.shares, node.cpu_used, node.memory_used, node.is_full))
        noted[place.node] = node
        node.cpu_used = min(node.spec.cpu_milli, node.cpu_used + place.cpu_milli)
        node.memory_used = min(node.spec.memory_mib, node.memory_used + place.memory_mib)
        node.is_full = node.is_full or by_all or place.is_alone
        node.held |= place.devices & node.free
        if any(place.devices >> device & 1 for device in node.shares):  # by now some of it is in use, maybe the owner's
            node.shares = {device: 0 if place.devices >> device & 1 else milli for device, milli in node.shares.items()}
        if place.share_milli:
            free_milli = node.shares.get(place.device, GPU if node.free >> place.device & 1 else 0)
            node.shares = {**node.shares, place.device: max(0, free_milli - place.share_milli)}
    try:
        yield
    finally:
        for node, held, shares, cpu, memory, is_full in reversed(before):
            node.held, node.shares, node.is_full = held, shares, is_full
            node.cpu_used, node.memory_used = cpu, memory
            noted[node.spec.id] = node
        state.capacity.pools()
