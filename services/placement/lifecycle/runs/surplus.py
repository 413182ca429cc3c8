"""Which replicas of a service go first: one on a node that is to be emptied, else one that has not started, else one in
the failure domain that has the most of them; of equals that of the highest rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import Level, RunStatus, WorkerPlace

_Domain = tuple[str | None, ...]
_Group = tuple[bool, bool, _Domain]
"""Replicas that stay longer, that run, and their failure domain."""

_Entry = tuple[bool, bool, int, int, _Group]
"""A group in the heap: the fewer are left in its domain the later it comes, and the lower its highest rank."""


def in_order_of_cost(state: CellState, job: Job, places: Sequence[WorkerPlace]) -> Iterator[WorkerPlace]:
    """The replicas, the one to give up first first, each as if those before it were gone. Ten thousand take as many
    steps and not their square: within a group the order is fixed, and a group is looked at anew when it is first.
    """
    groups: dict[_Group, list[WorkerPlace]] = {}
    level, many = job.spec.spread or Level.NODE, Counter[_Domain]()
    for place in sorted(places, key=lambda place: place.rank):
        domain = _domain(state, place.node, level)
        many[domain] += 1
        stays = not state.nodes[place.node].is_to_be_emptied
        runs = job.runs[str(place.rank)] is not RunStatus.STARTING
        groups.setdefault((stays, runs, domain), []).append(place)

    def entry(group: _Group) -> _Entry:
        stays, runs, domain = group
        return stays, runs, -many[domain], -groups[group][-1].rank, group

    heap = [entry(group) for group in groups]
    heapify(heap)
    while heap:
        group = heappop(heap)[-1]
        newest = entry(group)
        if heap and heap[0] < newest:  # others of its domain went meanwhile
            heappush(heap, newest)
            continue
        yield groups[group].pop()
        many[group[-1]] -= 1
        if groups[group]:
            heappush(heap, entry(group))


def _domain(state: CellState, node_id: str, level: Level) -> _Domain:
    """The unit of the level around a node; a node that does not know its unit is one of its own."""
    position = state.nodes[node_id].spec.position
    path = (position.superspine, position.spine, position.leaf, position.domain)
    depth = {Level.SUPERSPINE: 1, Level.SPINE: 2, Level.LEAF: 3, Level.DOMAIN: 4}.get(level, 0)
    return path[:depth] if depth and path[depth - 1] is not None else (node_id,)
