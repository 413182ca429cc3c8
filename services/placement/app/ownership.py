"""Which cells this process is to write, now: what the group says, less what the process has given up."""

from __future__ import annotations

from fallow.shared.log.port import Member


class Ownership:
    """Kept up to date by the watch of the group; asked by the writers of the cells."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._owned: frozenset[int] = frozenset()
        self._given_up: frozenset[int] = frozenset()

    def __contains__(self, ordinal: int) -> bool:
        """Whether the cell of this ordinal is ours to write."""
        return ordinal in self._owned and ordinal not in self._given_up

    async def changed(self) -> list[int]:
        """Wait for the next change of the group; the ordinals that are ours from now on."""
        self._owned = await self._member.changed()
        return sorted(self._owned - self._given_up)

    def give_up(self, ordinal: int) -> None:
        """Write this cell no more: another member of the group gets it, if there is one that takes it."""
        self._decline(self._given_up | {ordinal})

    def take_again(self, ordinal: int) -> None:
        """Write this cell again as soon as the group says so."""
        self._decline(self._given_up - {ordinal})

    def _decline(self, ordinals: frozenset[int]) -> None:
        self._given_up = ordinals
        self._member.decline(ordinals)
