"""The heads of a walk, found by who competes with them: a thousand heads cost a job behind them little.

Heads that wait for room are told apart by where they could be, blocks of them together; heads that a limit keeps by the
tenant whose limit it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fallow.services.placement.fit.empty_capacity import Reach, meet

BLOCK = 32


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


@dataclass(slots=True)
class _Known(Generic[H]):
    """What is known of one class: the heads with which it competes, by their numbers and those that are due first, and
    how far was looked.
    """

    found: list[tuple[int, H]] = field(default_factory=list)
    over: list[H] = field(default_factory=list)
    rooms: int = 0
    limits: dict[str, int] = field(default_factory=dict)


class HeadIndex(Generic[H]):
    """Heads in the order in which they were added."""

    __slots__ = ("_blocks", "_known", "_limits", "_rooms", "all", "has_limits")

    def __init__(self) -> None:
        self.all: list[H] = []
        self.has_limits = False
        self._rooms = 0
        self._blocks: list[_Block[H]] = []
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
        if not self._blocks or len(self._blocks[-1].heads) == BLOCK:
            self._blocks.append(_Block())
        self._blocks[-1].add(number, head)
        self._rooms += 1

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
        """Those that came since this class was looked at last, but for blocks that are elsewhere."""
        begin, known.rooms = known.rooms, self._rooms
        for block in self._blocks[begin // BLOCK :] if begin < self._rooms else ():
            if meet(reach, block.reach):
                yield from block.heads[begin % BLOCK :]
            begin = 0
        for tenant in tenants:
            heads = self._limits.get(tenant)
            if heads is not None:
                yield from heads[known.limits.get(tenant, 0) :]
                known.limits[tenant] = len(heads)
