"""Nodes on which heads could be are counted before any is looked at."""

from __future__ import annotations

from copy import copy

import pytest

from fallow.services.placement.search.beside import CLOSED_MAX, place_beside
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import Node
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.networks import POOL, Machine, gang, network


class Looked(dict[str, Node]):
    """The nodes of a cell, and how often any of them is looked at."""

    looks = 0

    def __getitem__(self, name: str) -> Node:
        self.looks += 1
        return super().__getitem__(name)


@pytest.mark.parametrize("spare", [0, 1])
def test_where_heads_could_be_on_too_many_nodes_none_of_these_is_looked_at(spare: int) -> None:
    state = network([Machine("a") for _ in range(CLOSED_MAX + 3)])
    for name in sorted(state.nodes)[: 1 + spare]:
        node = state.nodes[name].spec
        apply(state, e.NodeChanged(spec=node, boot="boot-1", status=NodeStatus.CORDONED), 0)
    state.pools  # noqa: B018 - all changes are counted
    seen = copy(state)
    nodes = seen.nodes = Looked(state.nodes)
    every = (1 << len(nodes)) - 1
    job = Job(gang("later"), submit_ms=0, number=1, digest="")
    found = place_beside(seen, job, {POOL: every}, {POOL: 1 << (len(nodes) - 1)}, 0)
    if spare:
        assert [place.node for place in found] == [max(nodes)]  # type: ignore[union-attr]
    else:
        assert (found, nodes.looks) == (PendingReason.BEHIND_HEAD, 0)
