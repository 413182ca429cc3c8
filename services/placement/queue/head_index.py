"""The heads of a walk, found by who competes with them: a thousand heads cost a job behind them little.

Heads that wait for room are told apart by where they could be: those of few nodes by each of these, for jobs of few
nodes, and all of them by blocks. Heads that a limit keeps are told apart by the tenant whose limit it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from fallow.services.placement.fit.empty_capacity import Reach, meet
from fallow.shared.cluster.capacity.effort import Effort
from fallow.shared.cluster.capacity.masks import each_bit

BLOCK = 32

NODES_FEW = 8
"""Heads and jobs of so many nodes at most meet by these: of a thousand that each name other nodes, few."""

NODES_FEW_OF_DUE = 64
"""The same of due heads: these are asked for until they leave a job no node, of all others the first one is enough."""

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

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.heads[-1][0]

    def add(self, number: int, head: H) -> None:
        self.heads.append((number, head))
        for name, mask in head.reach.items():
            self.reach[name] = self.reach.get(name, 0) | mask


class _Blocks(Generic[H]):
    """Heads in the order in which they came, in blocks."""

    __slots__ = ("_blocks", "_effort", "size")

    def __init__(self, effort: Effort) -> None:
        self._blocks: list[_Block[H]] = []
        self._effort, self.size = effort, 0

    def add(self, number: int, head: H) -> None:
        if self.size % BLOCK == 0:
            self._blocks.append(_Block())
        self._blocks[-1].add(number, head)
        self.size += 1

    def since(self, begin: int, reach: Reach) -> Iterator[tuple[int, H]]:
        """Those from this number on, but for blocks that are elsewhere."""
        blocks = self._blocks
        if not blocks or blocks[-1].last < begin:
            return
        for at in range(bisect_left(blocks, begin, key=_last), len(blocks)):
            self._effort.comparisons += 1
            if meet(reach, blocks[at].reach):
                yield from _since(blocks[at].heads, begin)


@dataclass(slots=True)
class _Known(Generic[H]):
    """What is known of one class: the heads with which it competes among the first so many (`seen`), and those that
    are left to look at (`left`), of as many as there were then (`size`).
    """

    found: list[H] = field(default_factory=list)
    seen: int = 0
    left: Iterator[tuple[int, H]] = field(default_factory=lambda: iter(()))
    size: int = 0


class _Heads(Generic[H]):
    """Heads in the order in which they were added. A job is held against no more of them than are asked for."""

    __slots__ = ("_at", "_effort", "_few", "_known", "_limits", "_rooms", "_size", "_wide")

    def __init__(self, effort: Effort, few: int) -> None:
        """Heads and jobs of so `few` nodes at most meet by these."""
        self._effort, self._few, self._size = effort, few, 0
        self._rooms, self._wide = _Blocks[H](effort), _Blocks[H](effort)
        self._at: dict[str, dict[int, list[tuple[int, H]]]] = {}
        self._limits: dict[str, list[tuple[int, H]]] = {}
        self._known: dict[Hashable, _Known[H]] = {}

    def add(self, head: H) -> None:
        """One more."""
        number, self._size = self._size, self._size + 1
        if head.under is not None:
            self._limits.setdefault(head.under, []).append((number, head))
            return
        self._rooms.add(number, head)
        if not self._is_narrow(head.reach):
            self._wide.add(number, head)
            return
        for name, mask in head.reach.items():
            at = self._at.setdefault(name, {})
            for node in each_bit(mask):
                at.setdefault(node, []).append((number, head))

    def over(self, job_class: Hashable, reach: Reach, tenants: Sequence[str]) -> Iterator[H]:
        """Those with which a job of this class competes, the first one first."""
        if not self._size:
            return
        known = self._known.get(job_class)
        if known is None:
            known = self._known[job_class] = _Known()
        for head in known.found:
            self._effort.comparisons += 1
            yield head
        if known.seen == self._size:
            return
        if known.size != self._size:
            known.left, known.size = iter(self._near(known.seen, reach, tenants)), self._size
        for number, head in known.left:
            if number < known.seen:
                continue
            known.seen = number + 1
            self._effort.comparisons += 1
            if meet(reach, head.reach):
                known.found.append(head)
                yield head
        known.seen = self._size

    def _near(self, begin: int, reach: Reach, tenants: Sequence[str]) -> Iterable[tuple[int, H]]:
        """Those from this number on in their order, but for such as are elsewhere; some more than once."""
        if self._is_narrow(reach):
            found = [self._on_nodes(begin, reach)]
            if self._wide.size:
                found.append(self._wide.since(begin, reach))
        else:
            found = [self._rooms.since(begin, reach)]
        found += [_since(self._limits[tenant], begin) for tenant in tenants if tenant in self._limits]
        return found[0] if len(found) == 1 else merge(*found, key=_number)

    def _on_nodes(self, begin: int, reach: Reach) -> Iterable[tuple[int, H]]:
        """The heads of few nodes, from this number on, that could be on any of these, in their order."""
        lists = list[list[tuple[int, H]]]()
        for name, mask in reach.items():
            at = self._at.get(name, {})
            for node in each_bit(mask) if at else ():
                heads = at.get(node)
                if heads and heads[-1][0] >= begin:
                    lists.append(_since(heads, begin))
        if len(lists) > 1 and sum(len(heads) for heads in lists) <= BLOCK:  # few are sorted sooner than merged
            return sorted({each[0]: each for heads in lists for each in heads}.values(), key=_number)
        return lists[0] if len(lists) == 1 else merge(*lists, key=_number)

    def _is_narrow(self, reach: Reach) -> bool:
        return sum(mask.bit_count() for mask in reach.values()) <= self._few


class HeadIndex(Generic[H]):
    """Heads in the order in which they were added."""

    __slots__ = ("_due", "_others", "all", "has_limits")

    def __init__(self, effort: Effort) -> None:
        """`effort` is the cell's: how many comparisons were made is counted there."""
        self.all: list[H] = []
        self.has_limits = False
        self._due, self._others = _Heads[H](effort, NODES_FEW_OF_DUE), _Heads[H](effort, NODES_FEW)

    def add(self, head: H) -> None:
        """One more."""
        self.all.append(head)
        self.has_limits = self.has_limits or head.under is not None
        (self._due if head.is_due else self._others).add(head)

    def over(self, job_class: Hashable, reach: Reach, tenants: Sequence[str]) -> Iterator[H]:
        """The heads with which a job of this class competes: that could be where it could be, and wait for room or for
        the limit of one of these tenants. Those that are due come first. Nobody asks for the same class anew while this
        is read: both would read from one iterator.
        """
        yield from self._due.over(job_class, reach, tenants)
        yield from self._others.over(job_class, reach, tenants)

    def due_over(self, job_class: Hashable, reach: Reach, tenants: Sequence[str]) -> Iterator[H]:
        """Those of them that are due."""
        return self._due.over(job_class, reach, tenants)


def _since(heads: list[tuple[int, H]], begin: int) -> list[tuple[int, H]]:
    """Those from this number on."""
    return heads[bisect_left(heads, begin, key=_number) :] if begin else heads


def _last(block: _Block[H]) -> int:
    return block.last
