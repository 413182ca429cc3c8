"""The indices answer as a naive search over all nodes would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.capacity.capacity import PoolCapacity, insert_node, move, recount, remove_node
from fallow.shared.cluster.model.node import NOTHING, Node, bits, lowest, mask_of, share_of
from fallow.shared.events.fields.values import NodeSpec, NodeStatus
from tests.cluster.worlds.histories import Historian, history
from tests.hypothesis_profile import reaches

NAMES = st.lists(st.integers(0, 999).map("n{:03d}".format), unique=True, min_size=1, max_size=12)


def node_with(id_: str, *, held: int = 0, status: NodeStatus = NodeStatus.READY) -> Node:
    return Node(NodeSpec(id=id_, pool="p", gpus=8), "boot", status, held=mask_of(tuple(range(held))))


def by_hand(nodes: dict[str, Node], gpus: int, among: list[str]) -> list[str]:
    """The ids of the fullest nodes with room for so many GPUs."""
    fits = [nodes[id_] for id_ in sorted(among) if nodes[id_].is_schedulable and nodes[id_].gpus_free >= gpus]
    return [node.id for node in fits if node.gpus_free == min(fit.gpus_free for fit in fits)]


def fullest_with(pool: PoolCapacity, gpus: int, among: int) -> list[int]:
    """The numbers of the same nodes, as the index has them."""
    masks = (pool.by_free[free] & among for free in sorted(pool.by_free) if free >= gpus)
    return bits(next((mask for mask in masks if mask), 0))


@given(seed=st.integers(0, 2**32), gpus=st.integers(1, 9), among=st.integers(-1, 2**14))
def test_the_fullest_nodes_are_those_that_a_naive_search_finds(seed: int, gpus: int, among: int) -> None:
    state = history(seed, 40).state
    is_found = False
    for pool in state.pools.values():
        found = [pool.ids[number] for number in fullest_with(pool, gpus, among)]
        is_found |= bool(found)
        assert found == by_hand(state.nodes, gpus, [id_ for n, id_ in enumerate(pool.ids) if among >> n & 1])
    reaches("a node has room for so many GPUs", is_found)


@given(seed=st.integers(0, 2**32), decisions=st.integers(1, 60))
def test_pools_stand_in_the_order_of_their_names_whatever_has_joined_first(seed: int, decisions: int) -> None:
    historian, in_turn = Historian(seed), list[str]()
    for _ in range(decisions):
        historian.decide()
        assert list(historian.state.pools) == sorted(historian.state.pools) == list(recount(historian.state.nodes))
        in_turn += [pool for pool in historian.state.pools if pool not in in_turn]
    reaches("pools get their first nodes in another order than their names", in_turn != sorted(in_turn))


@given(names=NAMES, held=st.lists(st.integers(0, 8), min_size=12, max_size=12))
def test_nodes_may_come_in_any_order(names: list[str], held: list[int]) -> None:
    nodes = {name: node_with(name, held=many) for name, many in zip(names, held, strict=False)}
    pool = PoolCapacity()
    reaches("nodes come in another order than that of their names", names != sorted(names))
    for name in names:
        insert_node(pool, name)
        move(pool, name, NOTHING, share_of(nodes[name]))
    assert pool.ids == sorted(names)
    assert pool == recount(nodes)["p"]


@given(names=NAMES, data=st.data())
def test_a_node_that_leaves_closes_its_gap(names: list[str], data: st.DataObject) -> None:
    nodes = {name: node_with(name, held=len(name) + number) for number, name in enumerate(names) if number < 6}
    pool = recount(nodes)["p"]
    gone = data.draw(st.sampled_from(sorted(nodes)))
    reaches("a node leaves that stands between others", min(nodes) < gone < max(nodes))
    move(pool, gone, share_of(nodes[gone]), NOTHING)
    remove_node(pool, gone)
    del nodes[gone]
    assert {"p": pool} == (recount(nodes) or {"p": PoolCapacity()})


def test_a_lost_node_counts_for_nothing_and_a_cordoned_one_is_only_not_free() -> None:
    nodes = {
        "cordoned": node_with("cordoned", held=2, status=NodeStatus.CORDONED),
        "lost": node_with("lost", status=NodeStatus.LOST),
        "ready": node_with("ready", held=3),
    }
    pool = recount(nodes)["p"]
    assert pool.by_free == {5: 0b100}
    assert (pool.nodes_usable, pool.nodes_fragmented, pool.gpus_milli) == (2, 2, 16_000)
    assert (pool.free_whole, pool.allocated_milli) == (5, 5_000)


MASKS = st.integers(0, 2**70) | st.sets(st.integers(0, 69)).map(lambda devices: mask_of(tuple(devices)))


@given(mask=MASKS, count=st.integers(0, 3) | st.integers(0, 80))
def test_masks_and_device_numbers_are_two_forms_of_one_thing(mask: int, count: int) -> None:
    reaches("fewer devices are wanted than are in the mask", 0 < count < mask.bit_count())
    assert mask_of(tuple(bits(mask))) == mask
    assert lowest(mask, count) == tuple(bits(mask)[:count])
