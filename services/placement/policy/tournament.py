"""Whose turn it is: of all tenants that have a job left, the one that comes first by shares, level by level."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

from services.placement.policy.fair_share import Share, Shares


@dataclass(slots=True, eq=False)
class Seat:
    """A tenant, or what it has beside its children (`is_own`), with the seats below it, the smallest share first."""

    tenant: str
    is_own: bool
    below: list[tuple[Share, Seat]] = field(default_factory=list)


class Tournament:
    """Some tenants of a cell. Only the share of the one whose turn it is changes, so a turn costs a heap's depth."""

    def __init__(self, shares: Shares, tenants: list[str]) -> None:
        """Each tenant once."""
        self._shares = shares
        self._root = Seat("", is_own=False)
        seats: dict[str, Seat] = {"": self._root}
        for tenant in tenants:
            above = ""
            for name in shares.line(tenant):
                if name not in seats:
                    seats[name] = Seat(name, is_own=False)
                    seats[above].below.append((shares.of(name), seats[name]))
                above = name
            seats[tenant].below.append((shares.own(tenant), Seat(tenant, is_own=True)))
        for seat in seats.values():
            heapify(seat.below)

    def first(self) -> str | None:
        """The tenant whose turn it is; None when none is left."""
        line = self._line()
        return line[-1].tenant if len(line) > 1 else None

    def served(self) -> None:
        """The tenant whose turn it is has got something."""
        line = self._line()
        for above, seat in pairwise(line):
            share = self._shares.own(seat.tenant) if seat.is_own else self._shares.of(seat.tenant)
            heapreplace(above.below, (share, seat))

    def leave(self) -> None:
        """The tenant whose turn it is has no job left."""
        for above in reversed(self._line()[:-1]):
            heappop(above.below)
            if above.below:
                return

    def _line(self) -> list[Seat]:
        """From the root down to the seat whose turn it is."""
        line = [self._root]
        while line[-1].below:
            line.append(line[-1].below[0][1])
        return line
