"""A search beside kept places sees each node as it is where these count as in use, whatever was searched before."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from random import Random

import pytest

from fallow.services.placement.owners.kept_index import KeptIndex, kept_in
from fallow.services.placement.search.beside_kept import search_beside
from fallow.shared.cluster.capacity.capacity import PoolCapacity, recount
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.kept_places import InUse, KeptPlace, in_use, take_place
from fallow.shared.events.fields.value import replace
from tests.placement.owners.test_kept_places import SMALL, Cell
from tests.placement.worlds.world import admitted, finished, spec_of

NODES = ("n1", "n2", "n3", "n4")


def with_kept_places() -> Cell:
    """Bob has taken nearly all of four nodes; ada and eve wait for whole nodes and for parts of them."""
    cell = Cell(nodes=len(NODES), placement="spread")
    cell.fill(SMALL, 26)
    jobs = (("own", "ada", 8), ("own-part", "ada", 2), ("her", "eve", 4), ("her-part", "eve", 3))
    specs = [
        replace(SMALL, id=name, tenant=tenant, resources=spec_of(name, gpus).resources) for name, tenant, gpus in jobs
    ]
    cell.world.tell(*(admitted(spec, 2) for spec in specs))
    return cell


def beside(state: CellState, index: KeptIndex, own: Mapping[str, list[KeptPlace]]) -> dict[str, InUse]:
    """What is in use of each node when the kept places are, by its own reckoning."""
    found = {}
    for node_id in NODES:
        node = copy(state.nodes[node_id])
        for place in own.get(node_id, index.kept_on(node_id)):
            take_place(node, place)
        found[node_id] = in_use(node)
    return found


def seen(state: CellState, pool: PoolCapacity) -> dict[str, InUse]:
    """The nodes that a search comes by. What is counted of them is what they are."""
    assert pool == recount(state.nodes)["train"]
    return {node_id: in_use(state.nodes[node_id]) for node_id in NODES}


@pytest.mark.parametrize("seed", range(3))
def test_each_search_sees_the_nodes_beside_what_is_kept_now_but_for_what_its_tenant_may_take(seed: int) -> None:
    random, cell = Random(seed), with_kept_places()
    state, took, nodes = cell.world.state, 0, set[str]()
    for job in range(24):
        cell.world.tell(*(finished(f"b{job}", node) for node in cell.world.nodes_of(f"b{job}")))
        pool = state.pools["train"]
        index = kept_in(state, pool)
        nodes |= {*index.on}
        for _ in range(10):
            own = {
                node_id: index.kept_on(node_id)[: random.randint(0, 1)] for node_id in NODES if random.random() < 0.5
            }
            took += any(own[node_id] != index.kept_on(node_id) for node_id in own)
            assert search_beside(state, pool, index, own, seen) == beside(state, index, own)
    assert took > 24, "tenants may take some of what is kept"
    assert len(nodes) > 1, "it is kept on several nodes in turn"
