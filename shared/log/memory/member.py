"""Membership of a group within one process: round robin in the order of joining, and at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fallow.shared.log.machine.sharing import share


class MemoryGroup:
    """The members of one group, and the number of partitions that they share."""

    def __init__(self, partitions: Callable[[], int]) -> None:
        self._partitions = partitions
        self._members: list[MemoryMember] = []

    def join(self, member: MemoryMember) -> None:
        """Add a member and share anew."""
        self._members.append(member)
        self.share()

    def leave(self, member: MemoryMember) -> None:
        """Take a member out and share anew. Harmless when it has left already."""
        if member in self._members:
            self._members.remove(member)
            member.own(frozenset())
            self.share()

    def share(self) -> None:
        """Say anew who owns what."""
        declined = {f"{position:09}": member.declined for position, member in enumerate(self._members)}
        shares = share(range(self._partitions()), declined)
        for member, name in zip(self._members, declined, strict=True):
            member.own(frozenset(shares[name]))


class MemoryMember:
    """One member. `own` is called by its group."""

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group
        self.declined: frozenset[int] = frozenset()
        self._owned: frozenset[int] = frozenset()
        self._change_count = 0
        self._seen_count = 0
        self._change = asyncio.Event()

    async def start(self) -> None:
        """Join the group."""
        self._group.join(self)

    async def stop(self) -> None:
        """Leave the group."""
        self._group.leave(self)

    def owned(self) -> frozenset[int]:
        """As the group last shared."""
        return self._owned

    def decline(self, partitions: frozenset[int]) -> None:
        """Shared anew at once."""
        if partitions != self.declined:
            self.declined = partitions
            self._group.share()

    async def changed(self) -> frozenset[int]:
        """Meant for one waiter: a second one would take answers from the first."""
        while self._seen_count == self._change_count:
            self._change.clear()
            await self._change.wait()
        self._seen_count = self._change_count
        return self._owned

    def own(self, partitions: frozenset[int]) -> None:
        """Take note of the new share."""
        if partitions != self._owned:
            self._owned = partitions
            self._change_count += 1
            self._change.set()
