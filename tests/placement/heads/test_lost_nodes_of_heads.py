"""A head that lacks a lost node waits for it as for any other."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.queue import QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.heads.test_heads import BACKFILL, submit, world_of
from tests.placement.worlds.world import joined, lost


@pytest.mark.parametrize("order", QueueOrder)
def test_a_head_that_lacks_a_lost_node_for_a_while_has_waited_all_the_same(order: QueueOrder) -> None:
    """Else a gang that needs all nodes of a kind would wait for ever where one of them is lost now and then."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=order), wait_ms=10_000)
    world.tell(joined("n1", 4), joined("n2", 4))
    submit(world, "first-1", 4)
    submit(world, "first-2", 4)
    submit(world, "head", 4, 2, tenant="bob")
    world.pass_time(20_000)
    submit(world, "later", 4)
    world.tell(lost("n2", "boot-1"))
    assert world.job("head").deferred is PendingReason.NO_SUCH_NODES
    world.tell(joined("n2", 4, boot="boot-2"))
    assert (world.nodes_of("later"), world.state.heads["head"]) == ([], 0)
