"""The places of all claims, kept by what has changed: each is found beside those of the claims before it.

So a claim finds other places only where the nodes that it goes by are others than when it was looked for last, or where
claims before it have left them or come to them. All others keep what they have without a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fallow.services.placement.fit.empty_capacity import Reach, meet, without
from fallow.services.placement.owners.claim_places import Found, Free, Look, pick
from fallow.services.placement.owners.claims import Claim
from fallow.services.placement.owners.patience import changes_ms, turned_since_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import Kept, Taking


class Other(NamedTuple):
    """What is kept no more, and what is instead."""

    gone: list[Kept]
    new: list[Kept]


class _Link:
    """A claim with its places, once these were looked for."""

    __slots__ = ("claim", "found", "is_lent", "kept", "since_ms")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.kept: tuple[Kept, ...] = ()
        self.found: Found | None = None
        self.since_ms: int | None = None
        self.is_lent = False

    @property
    def waits_since_ms(self) -> int:
        """When its job was submitted."""
        return self.claim.place[1]


class KeptInOrder:
    """What is kept for the claims of a cell."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is claimed."""
        self._links: list[_Link] = []
        self._concerned: Reach | None = {}
        self._next_ms: int | None = None
        self._changed_ms = 0
        self.next_cell_ms: int | None = None
        """When more runs count as endless for a claim though nothing happens; None at no time."""

    @property
    def all(self) -> tuple[Kept, ...]:
        """All that is kept, in the order of the claims."""
        return tuple([kept for link in self._links for kept in link.kept])

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
        is_later = self._next_ms is not None and run.now_ms >= self._next_ms
        is_other = bool(gone or new) or meet(changed, self._nodes_concerned())
        if is_other:
            self._changed_ms = run.now_ms
        if is_other or is_later:
            run.go(self._links)
            self._concerned = None
            self._next_ms = min((changes_ms(link.waits_since_ms, run.now_ms) for link in self._links), default=None)
            # Of a claim for which all runs until the last change count already, time alone changes nothing.
            waiting = [link for link in self._links if link.since_ms is None or link.since_ms <= self._changed_ms]
            moments = [changes_ms(link.waits_since_ms, run.now_ms) for link in waiting]
            self.next_cell_ms = min(moments, default=None)
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
        self.now_ms = max(state.at_ms, state.clock_ms)
        self._taking = Taking(state)
        self._to_take: list[Kept] = []
        self._free: dict[str, Free] = {}
        self.other = Other([], [])

    def leave(self, link: _Link) -> None:
        """This claim is over."""
        assert link.kept, "it was looked for when it came"
        self.other.gone.extend(link.kept)
        self._mark(link.found)

    def go(self, links: Iterable[_Link]) -> None:
        """Look for the places of all that may find others."""
        self._state.capacity.pools()
        try:
            for link in links:
                since_ms = turned_since_ms(link.waits_since_ms, self.now_ms)
                is_old = link.found is None or link.since_ms != since_ms
                if is_old or (self._others and link.found and self._would_differ(link.found.looks)):
                    link.since_ms = since_ms
                    self._find(link)
                else:
                    self._to_take += [kept for kept in link.kept if kept.places]
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
        if claim.full:
            reach = without(reach, dict(claim.full))
        found = pick(self._state, spec, reach, claim.milli, link.since_ms)
        known, was_lent = link.found, link.is_lent
        # What holds a job that is guaranteed whole it gets at once: a job that had it lent would have to stop at once.
        link.is_lent = claim.is_taken_back and not (claim.is_whole and found.holds_all)
        if known is None or (known.places, known.more) != (found.places, found.more):
            self._replace(link, found)
            self._mark(link.found)
            self._mark(found)
        elif link.is_lent is not was_lent:
            self._replace(link, found)
        link.found = found
        self._taking.take(found.places + found.more)
        self._free.clear()
        self._state.capacity.pools()

    def _replace(self, link: _Link, found: Found) -> None:
        claim = link.claim
        kept = [Kept(claim.owners, found.places, claim.is_whole, is_lent=link.is_lent)]
        if found.more:
            kept.append(kept[0]._replace(places=found.more, is_more=True))
        self.other.gone.extend(link.kept)
        self.other.new.extend(kept)
        link.kept = tuple(kept)

    def _mark(self, found: Found | None) -> None:
        """These nodes are others from here on than they were in the run before."""
        for look in () if found is None else found.looks:
            if look.chosen:
                self._others[look.pool] = self._others.get(look.pool, 0) | look.chosen
                self._free.pop(look.pool, None)
