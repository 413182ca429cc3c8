"""An exclusive job of which the policy's nodes would be too many goes to the cheapest that it may use, or waits."""

from __future__ import annotations

import pytest

from fallow.services.placement.search.gang import POLICIES
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.reasons import PendingReason
from tests.placement.owners.test_exclusive_beside_guarantees import alone, two_nodes
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import admitted, cell_with, joined, report, set_policy, set_quotas


def test_broken_devices_of_its_nodes_are_nothing_that_it_takes() -> None:
    world = two_nodes(share("ada"), share("bob", 8, lends=False))
    world.tell(report("n1", failed=(0,)), admitted(alone("guest")))
    assert world.nodes_of("guest") == ["n1"]


@pytest.mark.parametrize("placement", POLICIES)
def test_a_cheaper_node_that_it_may_not_use_keeps_it_from_none(placement: str) -> None:
    sizes = (("n1", 8, "a"), ("n2", 4, "a"), ("n3", 2, "b"))
    world = cell_with(*(joined(node, gpus, labels={"zone": zone}) for node, gpus, zone in sizes))
    world.tell(set_quotas(share("ada"), share("bob", 10, lends=False)), set_policy(placement=placement))
    world.tell(admitted(alone("guest", 2, node_labels=("zone=a",))))
    assert world.nodes_of("guest") == ["n2"]


@pytest.mark.parametrize("placement", POLICIES)
@pytest.mark.parametrize("are_together", [True, False])
def test_who_requires_a_leaf_is_not_put_into_several_where_its_nodes_would_be_fewer(
    placement: str, *, are_together: bool
) -> None:
    sizes = {
        "n1": (8, "a"),
        "n2": (8, "a"),
        "n3": (4, "b"),
        "n4": (4, "c"),
        **{f"n{at}": (4, "d" if are_together else f"d{at}") for at in range(5, 10)},
    }
    nodes = [joined(n, gpus, cpu_milli=10_000, position=Position(leaf=leaf)) for n, (gpus, leaf) in sizes.items()]
    world = cell_with(*nodes)
    world.tell(set_quotas(share("ada"), share("bob", 29, lends=False)), set_policy(placement=placement))
    resources = Resources(gpu_milli=2_000, cpu_milli=6_000)
    topology = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    world.tell(admitted(replace(alone("guest", 2, 2), resources=resources, topology=topology)))
    told = (["n5", "n6"], None) if are_together else ([], PendingReason.QUOTA_REACHED)
    assert (world.nodes_of("guest"), why(world, "guest")) == told
