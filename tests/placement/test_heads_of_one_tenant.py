"""By shares each due head of a tenant keeps its room from other tenants, also one that stands before an older one."""

from __future__ import annotations

from shared.cluster.config import Queue
from shared.events.queue import QueueOrder
from shared.events.reasons import DeferCode
from tests.placement.test_heads import BACKFILL, submit, world_of
from tests.placement.world import finished, joined


def test_a_due_head_before_an_older_one_of_its_tenant_keeps_its_room_too() -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    for disk, tenant in (("a", "bob"), ("b", "bob"), ("c", "ada")):
        world.tell(joined(f"n-{disk}", 4, labels={"disk": disk}))
        submit(world, f"first-{disk}", 4, node_labels=(f"disk={disk}",), tenant=tenant)
    submit(world, "old", 4, node_labels=("disk=a",))
    world.pass_time(1_000)
    submit(world, "large", 4, 2, priority=1)
    world.pass_time(10_000)
    world.tell(finished("first-b", "n-b"))
    submit(world, "small", 2, tenant="eve")
    assert (world.nodes_of("small"), world.job("small").deferred) == ([], DeferCode.BEHIND_HEAD)
