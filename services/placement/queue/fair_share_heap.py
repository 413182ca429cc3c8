"""Whose turn it is: of all tenants that have a job left, the one that comes first by shares, level by level. Of tenants
with equal shares the one whose next job came first, whatever their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

from fallow.services.placement.queue.fair_share import Shares
from fallow.shared.cluster.model.job import Job

Came = tuple[int, int]
"""When a job was submitted, in milliseconds, and its number in its cell."""

Key = tuple[bool, int, Came, str]
"""What seats are compared by. No two jobs came at once, so the name decides only between tenants without any."""

_NEVER: Came = (1 << 63, 0)


def came_of(job: Job | None) -> Came:
    """When the job came; behind all others if there is none."""
    return _NEVER if job is None else (job.submit_ms, job.number)


@dataclass(slots=True, eq=False)
class Seat:
    """A tenant, or what it has beside its children (`is_own`), with the seats below it, the smallest share first."""

    tenant: str
    is_own: bool
    below: list[tuple[Key, Seat]] = field(default_factory=list)


class FairShareHeap:
    """Some tenants of a cell. Only the share of the one whose turn it is changes, so a turn costs a heap's depth."""

    def __init__(self, shares: Shares, came: Mapping[str, Came]) -> None:
        """`came` tells of each tenant when its next job came. It may change for the one whose turn it is, which is
        `moved` then.
        """
        self._shares, self._came = shares, came
        self._root = Seat("", is_own=False)
        below: dict[str, list[Seat]] = {"": []}
        seats: dict[str, Seat] = {"": self._root}
        for tenant in came:
            above = ""
            for name in shares.line(tenant):
                if name not in seats:
                    seats[name], below[name] = Seat(name, is_own=False), []
                    below[above].append(seats[name])
                above = name
            below[tenant].append(Seat(tenant, is_own=True))
        for name, seat in reversed(seats.items()):  # those below another one were met behind it
            seat.below = [(self._key(each), each) for each in below[name]]
            heapify(seat.below)

    def first(self) -> str | None:
        """The tenant whose turn it is; None when none is left."""
        line = self._line()
        return line[-1].tenant if len(line) > 1 else None

    def moved(self) -> None:
        """The tenant whose turn it is has got something, or another job is its next one."""
        for above, seat in reversed(list(pairwise(self._line()))):
            heapreplace(above.below, (self._key(seat), seat))

    def leave(self) -> None:
        """The tenant whose turn it is has no job left."""
        for above, seat in reversed(list(pairwise(self._line()))):
            if seat.is_own or not seat.below:
                heappop(above.below)
            else:
                heapreplace(above.below, (self._key(seat), seat))

    def _key(self, seat: Seat) -> Key:
        """A seat goes by the share of all below it, and by the job that would be its next one."""
        share = self._shares.own(seat.tenant) if seat.is_own else self._shares.of(seat.tenant)
        came = self._came[seat.tenant] if seat.is_own else seat.below[0][0][2]
        return (share.has_no_weight, share.share, came, seat.tenant)

    def _line(self) -> list[Seat]:
        """From the root down to the seat whose turn it is."""
        line = [self._root]
        while line[-1].below:
            line.append(line[-1].below[0][1])
        return line
