"""The cheapest set of preemptions, by branch and bound, for instances that are small enough.

A node of the search has decided of some servers that they are vacated, of others that they are not. Its bound is what
the decided servers cost, plus the smallest shares c(s) among the open ones, as many as are still needed. The cost of a
job is shared by its servers that may still be vacated, which only raises the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from fallow.services.loaning.policy.reclaim.spread import Spread


@dataclass(frozen=True, slots=True)
class Found:
    """The best preemptions that were found, None where no better ones than those that were known; and the bound that
    was proven for all.
    """

    preempted: list[str] | None
    cost_min: int


@dataclass(frozen=True, slots=True)
class _Node:
    """What is decided: jobs that end, servers that stay. `bound` is in whole costs; `branch` is the next server."""

    ended: frozenset[str]
    kept: frozenset[int]
    bound: int
    branch: int | None


def search(spread: Spread, needed: int, cost_known: int, nodes_max: int) -> Found:
    """Look for preemptions that vacate `needed` servers for less than `cost_known`, through so many nodes at most."""
    tree = _Tree(spread, needed)
    best: list[str] | None = None
    stack, looked = [tree.node(frozenset(), frozenset())], 0
    while stack and looked < nodes_max:
        node = stack.pop()
        looked += 1
        if node is None or node.bound >= cost_known:
            continue
        if node.branch is None:
            best, cost_known = [job for job in spread.servers_of if job in node.ended], node.bound
            continue
        stack += tree.children(node)
    open_bounds = [node.bound for node in stack if node is not None]
    return Found(best, min([cost_known, *open_bounds]))


class _Tree:
    """Makes the nodes of one search."""

    def __init__(self, spread: Spread, needed: int) -> None:
        self._jobs_on = [tuple(held) for held in spread.held]
        self._occupied = spread.occupied()
        self._servers_of, self._costs, self._needed = spread.servers_of, spread.costs, needed
        longest = max((len(there) for there in spread.servers_of.values()), default=1)
        self._unit = lcm(*range(1, longest + 1))

    def children(self, node: _Node) -> Iterator[_Node | None]:
        """Keep the server, or vacate it; the last one is looked at first."""
        assert node.branch is not None
        yield self.node(node.ended, node.kept | {node.branch})
        yield self.node(node.ended | set(self._jobs_on[node.branch]), node.kept)

    def node(self, ended: frozenset[str], kept: frozenset[int]) -> _Node | None:
        """None where it cannot vacate enough, or vacates a server that is to stay: another branch has that case."""
        if any(ended.issuperset(self._jobs_on[position]) for position in kept):
            return None
        open_servers = [s for s in self._occupied if s not in kept and not ended.issuperset(self._jobs_on[s])]
        left = self._needed - (len(self._occupied) - len(kept) - len(open_servers))
        cost = sum(self._costs[job] for job in ended)
        if left <= 0:
            return _Node(ended, kept, cost, None)
        if left > len(open_servers):
            return None
        shares = {s: self._share(s, ended, kept) for s in open_servers}
        smallest = sorted(shares.values())[:left]
        branch = min(open_servers, key=lambda s: (shares[s], s))
        return _Node(ended, kept, cost - (-sum(smallest) // self._unit), branch)

    def _share(self, server: int, ended: frozenset[str], kept: frozenset[int]) -> int:
        total = 0
        for job in self._jobs_on[server]:
            if job not in ended:
                total += self._costs[job] * self._unit // sum(s not in kept for s in self._servers_of[job])
        return total
