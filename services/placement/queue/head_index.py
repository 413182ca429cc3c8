"""The heads of a walk, found by who competes with them: a thousand heads cost a job behind them little.

Heads that wait for room are told apart by where they could be: those of few nodes by each of these, for jobs of few
nodes, and all of them by blocks. Heads that a limit keeps are told apart by the tenant whose limit it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from fallow.services.placement.fit.empty_capacity import Reach, meet
from fallow.shared.cluster.capacity.masks import each_bit

BLOCK = 32

NODES_FEW = 8
"""Heads and jobs of so many nodes at most meet by these: of a thousand that each name other nodes, few."""

_number = itemgetter(0)


class Placed(Protocol):
    """What the index goes by."""

    @property
    def reach(self) -> Reach:
        """Where the head could be."""

    @property
    def under(self) -> str | None:
        """The tenant whose limit keeps it; None where room is missing."""

    @property
    def is_due(self) -> bool:
        """Whether nothing may pass it."""


H = TypeVar("H", bound=Placed)


@dataclass(slots=True)
class _Block(Generic[H]):
    """Some heads, and where any of them could be."""

    heads: list[tuple[int, H]] = field(default_factory=list)
    reach: Reach = field(default_factory=dict)

    def add(self, number: int, head: H) -> None:
        self.heads.append((number, head))
        for name, mask in head.reach.items():
            self.reach[name] = self.reach.get(name, 0) | mask


class _Blocks(Generic[H]):
    """Heads in the order in which they came, in blocks."""

    __slots__ = ("_blocks", "size")

    def __init__(self) -> None:
        self._blocks: list[_Block[H]] = []
        self.size = 0

    def add(self, number: int, head: H) -> None:
        if self.size % BLOCK == 0:
            self._blocks.append(_Block())
        self._blocks[-1].add(number, head)
        self.size += 1

    def since(self, begin: int, reach: Reach) -> Iterator[tuple[int, H]]:
        """Those behind the first so many, but for blocks that are elsewhere."""
        for block in self._blocks[begin // BLOCK :] if begin < self.size else ():
            if meet(reach, block.reach):
                yield from block.heads[begin % BLOCK :]
            begin = 0


@dataclass(slots=True)
class _Known(Generic[H]):
    """What is known of one class: the heads with which it competes, by their numbers and those that are due first, and
    how far was looked: among all that wait for room (`rooms`), among those of them that could be on many nodes
    (`wide`), and among all heads (`seen`).
    """

    found: list[tuple[int, H]] = field(default_factory=list)
    over: list[H] = field(default_factory=list)
    rooms: int = 0
    wide: int = 0
    seen: int = 0
    limits: dict[str, int] = field(default_factory=dict)


class HeadIndex(Generic[H]):
    """Heads in the order in which they were added."""

    __slots__ = ("_at", "_known", "_limits", "_rooms", "_wide", "all", "has_limits")

    def __init__(self) -> None:
        self.all: list[H] = []
        self.has_limits = False
        self._rooms, self._wide = _Blocks[H](), _Blocks[H]()
        self._at: dict[tuple[str, int], list[tuple[int, H]]] = {}
        self._limits: dict[str, list[tuple[int, H]]] = {}
        self._known: dict[Hashable, _Known[H]] = {}

    def add(self, head: H) -> None:
        """One more."""
        number = len(self.all)
        self.all.append(head)
        if head.under is not None:
            self.has_limits = True
            self._limits.setdefault(head.under, []).append((number, head))
            return
        self._rooms.add(number, head)
        if not _is_narrow(head.reach):
            self._wide.add(number, head)
            return
        for name, mask in head.reach.items():
            for node in each_bit(mask):
                self._at.setdefault((name, node), []).append((number, head))

    def over(self, job_class: Hashable, reach: Reach, tenants: Sequence[str]) -> list[H]:
        """The heads with which a job of this class competes: that could be where it could be, and wait for room or for
        the limit of one of these tenants. Those that are due come first.
        """
        known = self._known.get(job_class)
        if known is None:
            known = self._known[job_class] = _Known()
        more = [(number, head) for number, head in self._unseen(known, reach, tenants) if meet(reach, head.reach)]
        if more:
            known.found += more
            known.found.sort(key=lambda each: (not each[1].is_due, each[0]))
            known.over = [head for _, head in known.found]
        return known.over

    def _unseen(self, known: _Known[H], reach: Reach, tenants: Sequence[str]) -> Iterator[tuple[int, H]]:
        """Those that came since this class was looked at last, but for such as are elsewhere."""
        if known.seen == len(self.all):
            return
        if _is_narrow(reach):
            yield from self._wide.since(known.wide, reach)
            yield from self._on_nodes(reach, known.seen)
        else:
            yield from self._rooms.since(known.rooms, reach)
        known.rooms, known.wide, known.seen = self._rooms.size, self._wide.size, len(self.all)
        for tenant in tenants:
            heads = self._limits.get(tenant)
            if heads is not None:
                yield from heads[known.limits.get(tenant, 0) :]
                known.limits[tenant] = len(heads)

    def _on_nodes(self, reach: Reach, begin: int) -> Iterator[tuple[int, H]]:
        """The heads of few nodes, from this number on, that could be on any of these: each once."""
        found: dict[int, H] = {}
        for name, mask in reach.items():
            for node in each_bit(mask):
                heads = self._at.get((name, node), ())
                found.update(heads[bisect_left(heads, begin, key=_number) :])
        yield from found.items()


def _is_narrow(reach: Reach) -> bool:
    return sum(mask.bit_count() for mask in reach.values()) <= NODES_FEW
