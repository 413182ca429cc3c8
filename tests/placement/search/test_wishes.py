"""A gang sits in the network as it wishes, or is told that it cannot."""

from __future__ import annotations

from collections import Counter

from fallow.services.placement.search.gang import place_gang
from fallow.shared.events.fields.values import Level, TopologyRequest, Wish
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.networks import Machine, gang, network, nodes_of, unit_of


def required(level: Level, slice_workers: int | None = None) -> TopologyRequest:
    return TopologyRequest(level=level, wish=Wish.REQUIRED, slice_workers=slice_workers)


def preferred(level: Level, slice_workers: int | None = None) -> TopologyRequest:
    return TopologyRequest(level=level, slice_workers=slice_workers)


def test_the_least_free_unit_that_holds_a_job_is_taken() -> None:
    rows = [("r0", "s0", 1), ("r0", "s0", 1), ("r1", "s0", 1), ("r1", "s0", 0), ("r2", "s1", 0), ("r2", "s1", 0)]
    state = network([Machine(leaf, spine, gpus=1, used=used) for leaf, spine, used in rows])
    assert nodes_of(place_gang(state, gang("p", topology=preferred(Level.SPINE)))) == ["n003"]


def test_a_preferred_level_may_be_broken() -> None:
    state = network([Machine("rack1", gpus=2, used=1), Machine("rack2", gpus=2, used=1)])
    assert nodes_of(place_gang(state, gang("g", 1, 2, topology=preferred(Level.LEAF)))) == ["n000", "n001"]


def test_a_gang_goes_into_the_unit_that_holds_all_of_it() -> None:
    state = network([Machine(leaf, gpus=8) for leaf in "aabbb"])
    assert nodes_of(place_gang(state, gang("g", 8, 3, topology=required(Level.LEAF)))) == ["n002", "n003", "n004"]


def test_a_required_level_keeps_a_gang_waiting() -> None:
    state = network([Machine(leaf, gpus=8, used=used) for leaf in "ab" for used in (0, 0, 4)])
    assert place_gang(state, gang("g", 5, 3, topology=required(Level.LEAF))) is PendingReason.TOPOLOGY
    assert place_gang(state, gang("g", 5, 4, topology=required(Level.LEAF))) is PendingReason.NO_SUCH_NODES


def test_nodes_that_do_not_know_their_leaf_are_no_leaf() -> None:
    state = network([Machine(None), Machine(None), Machine("a")])
    assert place_gang(state, gang("g", 4, 2, topology=required(Level.LEAF))) is PendingReason.NO_SUCH_NODES
    assert nodes_of(place_gang(state, gang("g", 4, 1, topology=required(Level.LEAF)))) == ["n002"]


def test_without_enough_gpus_the_network_is_not_the_reason() -> None:
    state = network([Machine("a", used=3), Machine("a", used=1)])
    wish = required(Level.LEAF)
    assert place_gang(state, gang("g", 4, 2, topology=wish)) is PendingReason.NO_FREE_GPUS
    assert place_gang(state, gang("g", 4, 1, topology=wish)) is PendingReason.FRAGMENTED


def test_all_workers_may_be_required_on_one_node() -> None:
    state = network([Machine("a", used=2), Machine("a", used=1), Machine("a")])
    assert nodes_of(place_gang(state, gang("g", 1, 3, topology=required(Level.NODE)))) == ["n001"] * 3


def test_a_wish_that_a_rack_cannot_grant_comes_out_as_one_block() -> None:
    machines = [Machine(f"rack-{n // 16:03}", f"block-{n // 256:03}", gpus=8, cpu=9_000) for n in range(800)]
    state = network(machines)
    found = nodes_of(place_gang(state, gang("big", 1, 2_048, topology=preferred(Level.LEAF))))
    assert {unit_of(state, Level.SPINE, node)[-1] for node in found} == {"block-000"}
    assert len(set(found)) == 256


def test_slices_are_spread_evenly_over_as_few_units_as_hold_them() -> None:
    state = network([Machine(leaf) for leaf in "aaaabbbbc"])
    found = nodes_of(place_gang(state, gang("g", 2, 12, topology=required(Level.LEAF, 2))))
    assert Counter(unit_of(state, Level.LEAF, node)[-1] for node in found) == {"a": 6, "b": 6}


def test_each_slice_of_a_gang_is_within_one_domain() -> None:
    state = network([Machine("a", domain=domain, gpus=2) for domain in "xxyyz"])
    found = nodes_of(place_gang(state, gang("g", 1, 8, topology=required(Level.DOMAIN, 4))))
    domains = [unit_of(state, Level.DOMAIN, node)[-1] for node in found]
    assert [set(domains[at : at + 4]) for at in (0, 4)] == [{"x"}, {"y"}]


def test_the_units_of_all_slices_are_close_together() -> None:
    machines = [Machine(leaf, spine) for leaf, spine in ("as", "bt", "ct")]
    state = network(machines)
    found = nodes_of(place_gang(state, gang("g", 2, 4, topology=required(Level.LEAF, 2))))
    assert found == ["n001", "n001", "n002", "n002"]


def test_slices_that_no_level_can_hold_go_anywhere_if_that_is_allowed() -> None:
    state = network([Machine(leaf, gpus=1) for leaf in "abcd"])
    assert len(set(nodes_of(place_gang(state, gang("g", 1, 4, topology=preferred(Level.LEAF, 2)))))) == 4
    assert place_gang(state, gang("g", 1, 4, topology=required(Level.LEAF, 2))) is PendingReason.NO_SUCH_NODES
