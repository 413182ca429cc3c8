"""What is told of a job that guarantees keep off, in numbers; and that the cheapest nodes that are free now may be too
many all the same.
"""

from __future__ import annotations

from fallow.services.placement.search.walled_off import walled_off
from fallow.shared.events.operations import Cordon
from fallow.shared.events.reasons import PendingReason
from tests.placement.owners.test_exclusive_beside_guarantees import alone, two_nodes
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import CELL, admitted, cell_with, joined, set_quotas, spec_of

ALONE, OTHERS = "alone on its nodes the job", "the guarantees of other tenants"


def test_what_is_its_own_is_not_missing() -> None:
    world = two_nodes(share("ada", 2, lends=False), share("bob", 9, lends=False))
    kept = f"{ALONE} needs 8 beside {OTHERS}; 16 are idle, 11 of them guaranteed and not lent"
    assert walled_off(world.state, alone("own")) == [f"1 more idle gpu: {kept}"]


def test_nothing_is_missing_of_what_is_all_its_own() -> None:
    world = two_nodes(share("ada", 8, lends=False), share("bob", 8, lends=False))
    world.tell(Cordon(cell=CELL, node="n2"))
    assert walled_off(world.state, spec_of("own", 4)) == []


def test_an_owner_that_is_alone_on_a_node_keeps_less_beside_it() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8), joined("n3", 8))
    world.tell(set_quotas(share("ada"), share("bob", 9, lends=False)), admitted(alone("his", tenant="bob")))
    kept = f"{ALONE} needs 16 beside {OTHERS}; 16 are idle, 1 of them guaranteed and not lent"
    assert walled_off(world.state, alone("guest", 8, 2)) == [f"1 more idle gpu: {kept}"]


def test_where_the_small_node_is_in_use_it_takes_no_large_one_of_which_an_owner_needs_a_part() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8), joined("n3", 2))
    world.tell(set_quotas(share("ada"), share("bob", 9, lends=False)), admitted(spec_of("first", 2)))
    assert world.nodes_of("first") == ["n3"]
    world.tell(admitted(alone("guest", 2)))
    assert why(world, "guest") is PendingReason.QUOTA_REACHED


def test_no_more_is_told_as_guaranteed_than_is_idle() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8))
    world.tell(admitted(spec_of("first", 8)))
    world.tell(set_quotas(share("ada"), share("bob", 9, lends=False)))
    kept = f"the job needs 1 beside {OTHERS}; 8 are idle, 8 of them guaranteed and not lent"
    assert walled_off(world.state, spec_of("guest")) == [f"2 more idle gpu: {kept}"]
