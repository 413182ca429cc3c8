"""How much an exclusive job takes: the cheapest of open nodes of several sizes, in one pool or several."""

from __future__ import annotations

import pytest

from fallow.services.placement.search.whole_nodes import cheapest_places, takes_milli
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.values import JobKind
from fallow.shared.events.operations import Cordon
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from tests.placement.owners.test_exclusive_beside_guarantees import alone
from tests.placement.owners.test_exclusive_property import FILE
from tests.placement.quotas.test_borrowing import share, why
from tests.placement.worlds.world import CELL, World, admitted, cancel, cell_with, joined, set_quotas, spec_of


def test_what_is_left_of_its_workers_goes_to_a_small_node_and_not_to_one_more_large_one() -> None:
    world = cell_with(joined("n1", 8), joined("n2", 8), joined("n3", 4))
    world.tell(set_quotas(share("ada"), share("bob", 8, lends=False)), admitted(alone("guest", 4, 3)))
    assert takes_milli(world.state, alone("other", 4, 3), "gpu") == 12_000
    assert sorted({*world.nodes_of("guest")}) in (["n1", "n3"], ["n2", "n3"])


def test_a_small_node_that_is_closed_makes_no_head_of_one_that_could_have_no_open_node() -> None:
    queues = (Queue(name="line", discipline=QueueDiscipline.STRICT_FIFO),)
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=18),), queues=queues)
    world = World(CellFile(cells=(part,), tenants=(Tenant(name="ada"), Tenant(name="bob"))))
    world.tell(joined("n1", 8), joined("n2", 8), joined("n3", 2), Cordon(cell=CELL, node="n3"))
    world.tell(set_quotas(share("ada"), share("bob", 9, lends=False)))
    world.tell(admitted(alone("head", queue="line")), admitted(spec_of("behind", queue="line"), 1))
    assert (why(world, "head"), why(world, "behind")) == (PendingReason.QUOTA_REACHED, None)


@pytest.mark.parametrize(("kind", "takes"), [(JobKind.INFERENCE, 16_000), (JobKind.TRAINING, 10_000)])
def test_replicas_take_the_nodes_of_several_pools(kind: JobKind, takes: int) -> None:
    """No pool holds both workers: of a job that is in one pool only, what it asks for counts."""
    world = World(FILE)
    world.tell(joined("n1", 8), joined("n2", 8, pool="extra"))
    spec = alone("serves", 5, 2, gang=False, kind=kind, pools=("train", "extra"))
    assert takes_milli(world.state, spec, "gpu") == takes


def test_of_two_choices_with_as_many_gpus_it_takes_the_one_with_fewer_nodes() -> None:
    world = cell_with(joined("n1", 4), joined("n2", 4), joined("n3", 8))
    places = cheapest_places(world.state, world.state.pools["train"], alone("guest", 4, 2))
    assert {place.node for place in places or ()} == {"n3"}


def test_one_for_which_kept_places_alone_would_be_few_enough_is_told_of_these_and_of_no_quota() -> None:
    tenants = tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))
    part = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=20),))
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.tell(*(joined(node) for node in ("n1", "n2")))
    world.tell(*(joined(node, 2, labels={"zone": "b"}) for node in ("n3", "n4")))
    world.tell(set_quotas(share("ada"), share("bob", 10, lends=False), share("eve", 4)))
    world.tell(admitted(spec_of("fill", 2, node_labels=("zone=b",))))
    world.tell(admitted(spec_of("own", 2, 2, tenant="eve", node_labels=("zone=b",))), admitted(alone("guest")))
    assert (world.nodes_of("guest"), why(world, "guest")) == ([], PendingReason.RESERVED_FOR_OTHER)
    world.tell(cancel("own", "eve"))
    assert world.nodes_of("guest") in (["n3"], ["n4"])
