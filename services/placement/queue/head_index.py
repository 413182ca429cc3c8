"""The heads of a walk in blocks: a thousand of them cost a job behind them little, whatever kind of job it is.

Two things are asked of heads: which is the first one that keeps a job back, and what all of them keep from it. Both are
answered for a group of jobs at once, by blocks: what a block keeps from the group is worked out once, and again only
when a head of it is gone or keeps another thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fallow.services.placement.fit.empty_capacity import Reach, meet, without
from fallow.shared.cluster.capacity.effort import Effort

BLOCK = 32

Age = tuple[int, int]
"""Since when a head waits, in milliseconds of cell time, and the number of its job: less for one that is older."""

NEVER: Age = (1 << 63, 0)

H = TypeVar("H")


@dataclass(slots=True)
class Block(Generic[H]):
    """Some heads that were added one behind the other, None where one is gone, with the tenants and the ages that they
    have, or had: those of the oldest and of the newest one.
    """

    heads: list[H | None] = field(default_factory=list)
    tenants: dict[str, None] = field(default_factory=dict)
    oldest: Age = NEVER
    newest: Age = (-1, 0)


class HoldsFor(Protocol[H]):
    """Which heads of all hold for a job."""

    def of(self, block: Block[H]) -> bool | None:
        """Whether all of a block do, or none; None where each is to be looked at."""

    def holds(self, head: H) -> bool:
        """Whether this one does."""


class HeadBlocks(Generic[H]):
    """Heads in the order in which they were added."""

    __slots__ = ("blocks", "changes", "effort", "size")

    def __init__(self, effort: Effort) -> None:
        """`effort` is the cell's: how many comparisons were made is counted there."""
        self.blocks: list[Block[H]] = []
        self.effort, self.size = effort, 0
        self.changes = 0
        """How often what is known of a head was forgotten."""

    def __iter__(self) -> Iterator[H]:
        """Those that are not gone."""
        return (head for block in self.blocks for head in block.heads if head is not None)

    def add(self, head: H, tenant: str, age: Age) -> int:
        """One more, of this tenant. Its number."""
        if self.size % BLOCK == 0:
            self.blocks.append(Block())
        block = self.blocks[-1]
        block.heads.append(head)
        block.tenants[tenant] = None
        block.oldest, block.newest = min(block.oldest, age), max(block.newest, age)
        self.size += 1
        return self.size - 1

    def get(self, number: int) -> H | None:
        """The head with this number; None if it is gone."""
        return self.blocks[number // BLOCK].heads[number % BLOCK]

    def remove(self, number: int) -> None:
        """The head with this number is gone. Who asks what the heads keep forgets that of it."""
        self.blocks[number // BLOCK].heads[number % BLOCK] = None


class KeptNodes(Generic[H]):
    """What heads keep from the jobs of one group. It looks at no more heads than it must."""

    __slots__ = ("_all", "_elsewhere", "_heads", "_keeps", "_of_blocks", "_state_of_all")

    def __init__(
        self,
        heads: HeadBlocks[H],
        keeps: Callable[[H], Reach],
        elsewhere: tuple[KeptNodes[H], str] | None = None,
    ) -> None:
        """`keeps` tells what one head keeps from the group. `elsewhere` tells the same of blocks without heads of a
        tenant, where that is the tenant of the group.
        """
        self._heads, self._keeps, self._elsewhere = heads, keeps, elsewhere
        self._of_blocks: dict[int, tuple[int, Reach]] = {}
        """For each block of which it is known, of how many heads."""
        self._all: Reach = {}
        self._state_of_all = (0, 0)

    def forget(self, number: int) -> None:
        """The head with this number is gone, or keeps another thing."""
        self._of_blocks.pop(number // BLOCK, None)
        self._heads.changes += 1

    def first(self, reach: Reach, holding: HoldsFor[H] | None = None) -> H | None:
        """The first head that keeps any of these nodes: of all of them, or of those `holding` for a job."""
        for at, block in enumerate(self._heads.blocks):
            is_whole = True if holding is None else holding.of(block)
            self._heads.effort.comparisons += 1
            if is_whole is False or not meet(reach, self.of_block(at)):
                continue
            for head in block.heads:
                self._heads.effort.comparisons += 1
                if head is None or not meet(reach, self._keeps(head)):
                    continue
                if holding is None or is_whole or holding.holds(head):
                    return head
        return None

    def beside(self, reach: Reach, holding: HoldsFor[H] | None = None) -> Reach:
        """Those of these nodes that no head keeps: none of them all, or of those `holding` for a job."""
        if holding is None:
            return without(reach, self._of_all())
        for at, block in enumerate(self._heads.blocks):
            if not reach:
                break
            is_whole = holding.of(block)
            self._heads.effort.comparisons += 1
            if is_whole:
                reach = without(reach, self.of_block(at))
            elif is_whole is None and meet(reach, self.of_block(at)):
                reach = self._beside_some(reach, block, holding)
        return reach

    def _beside_some(self, reach: Reach, block: Block[H], holding: HoldsFor[H]) -> Reach:
        for head in block.heads:
            self._heads.effort.comparisons += 1
            if head is not None and holding.holds(head):
                reach = without(reach, self._keeps(head))
        return reach

    def _of_all(self) -> Reach:
        state = (self._heads.size, self._heads.changes)
        if self._state_of_all != state:
            self._all, self._state_of_all = {}, state
            for at in range(len(self._heads.blocks)):
                self._heads.effort.comparisons += 1
                _add(self._all, self.of_block(at))
        return self._all

    def of_block(self, at: int) -> Reach:
        """What the heads of a block keep."""
        block = self._heads.blocks[at]
        if self._elsewhere is not None and self._elsewhere[1] not in block.tenants:
            return self._elsewhere[0].of_block(at)
        seen, kept = self._of_blocks.get(at, (0, {}))
        if seen < len(block.heads):
            _add(kept, self._kept_by(block.heads[seen:]))
            self._of_blocks[at] = len(block.heads), kept
        return kept

    def _kept_by(self, heads: list[H | None]) -> Reach:
        found: Reach = {}
        for head in heads:
            self._heads.effort.comparisons += 1
            if head is not None:
                _add(found, self._keeps(head))
        return found


def _add(to: Reach, more: Reach) -> None:
    for name, mask in more.items():
        to[name] = to.get(name, 0) | mask
