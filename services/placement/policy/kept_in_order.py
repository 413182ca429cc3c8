"""The places of all claims, kept by what has changed: each is found beside those of the claims before it.

So a claim finds other places only where the nodes that it goes by are others than when it was looked for last, or where
claims before it have left them or come to them. All others keep what they have without a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from services.placement.policy.claim_places import Found, Free, Look, pick
from services.placement.policy.claims import Claim
from services.placement.policy.ever import Reach, meet
from shared.cluster.kept_places import Kept, Taking
from shared.cluster.state import CellState


class Other(NamedTuple):
    """What is kept no more, and what is instead."""

    gone: list[Kept]
    new: list[Kept]


class _Link:
    """A claim with its places, once these were looked for."""

    __slots__ = ("claim", "found", "kept")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.kept: Kept | None = None
        self.found: Found | None = None


class KeptInOrder:
    """What is kept for the claims of a cell."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is claimed."""
        self._links: list[_Link] = []
        self._concerned: Reach | None = {}

    @property
    def all(self) -> tuple[Kept, ...]:
        """All that is kept, in the order of the claims."""
        return tuple([link.kept for link in self._links if link.kept is not None])

    def change(self, state: CellState, gone: Sequence[Claim], new: Sequence[Claim], changed: Reach) -> Other:
        """These claims are over, these have come, and these nodes are others than before."""
        run = _Run(state, changed)
        if gone:
            over = {id(claim) for claim in gone}
            for link in self._links:
                if id(link.claim) in over:
                    run.leave(link)
            self._links = [link for link in self._links if id(link.claim) not in over]
        if new:
            self._links += [_Link(claim) for claim in new]
            self._links.sort(key=_order)
        if gone or new or meet(changed, self._nodes_concerned()):
            run.go(self._links)
            self._concerned = None
        return run.other

    def _nodes_concerned(self) -> Reach:
        """The nodes by which any claim goes."""
        if self._concerned is None:
            self._concerned = {}
            looks = dict.fromkeys(look.concerns for link in self._links if link.found for look in link.found.looks)
            for pool, nodes in looks:
                self._concerned[pool] = self._concerned.get(pool, 0) | nodes
        return self._concerned


def _order(link: _Link) -> tuple[int, tuple[int, int, int]]:
    return link.claim[:2]


class _Run:
    """One run along the claims. `_others` are the nodes of each pool that are, at this place, others than they were
    here in the run before. Claims of which nothing is to be looked for only take their places in the state when a claim
    behind them is looked for.
    """

    def __init__(self, state: CellState, changed: Reach) -> None:
        self._state, self._others = state, dict(changed)
        self._taking = Taking(state)
        self._to_take: list[Kept] = []
        self._free: dict[str, Free] = {}
        self.other = Other([], [])

    def leave(self, link: _Link) -> None:
        """This claim is over."""
        assert link.kept is not None, "it was looked for when it came"
        self.other.gone.append(link.kept)
        self._mark(link.found)

    def go(self, links: Iterable[_Link]) -> None:
        """Look for the places of all that may find others."""
        self._state.capacity.pools()
        try:
            for link in links:
                if link.kept is None or link.found is None or (self._others and self._would_differ(link.found.looks)):
                    self._find(link)
                elif link.kept.places:
                    self._to_take.append(link.kept)
        finally:
            self._taking.close()

    def _would_differ(self, looks: Sequence[Look]) -> bool:
        """Whether this look could find other places now."""
        for look in looks:
            others = self._others.get(look.pool, 0)
            if others and look.would_differ(others, self._free_on(look.pool, others)):
                return True
        return False

    def _free_on(self, pool: str, others: int) -> Free:
        found = self._free.get(pool)
        if found is None:
            found = self._free[pool] = Free.on(self._state.capacity.as_counted[pool], others)
        return found

    def _find(self, link: _Link) -> None:
        """Look for its places anew."""
        for before in self._to_take:
            self._taking.take(before.places)
        self._to_take = []
        claim = link.claim
        spec, reach = claim.wanted.of_type(self._state, claim.gpu_type)
        found = pick(self._state, spec, reach, claim.milli)
        if link.kept is None or link.kept.places != found.places:
            self._replace(link, Kept(claim.owners, found.places, claim.is_whole))
            self._mark(link.found)
            self._mark(found)
        link.found = found
        self._taking.take(found.places)
        self._free.clear()
        self._state.capacity.pools()

    def _replace(self, link: _Link, kept: Kept) -> None:
        if link.kept is not None:
            self.other.gone.append(link.kept)
        self.other.new.append(kept)
        link.kept = kept

    def _mark(self, found: Found | None) -> None:
        """These nodes are others from here on than they were in the run before."""
        for look in () if found is None else found.looks:
            if look.chosen:
                self._others[look.pool] = self._others.get(look.pool, 0) | look.chosen
                self._free.pop(look.pool, None)
