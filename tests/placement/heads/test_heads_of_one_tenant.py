"""By shares each due head keeps its room from other tenants: also one that stands before an older one of its tenant,
and one that stood behind a head which starts.
"""

from __future__ import annotations

import pytest

from fallow.services.placement.search.reason_precedence import is_of_quota
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.queue import QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.heads.test_heads import BACKFILL, submit, world_of
from tests.placement.worlds.world import finished, joined, quota, set_quotas


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
    assert (world.nodes_of("small"), world.job("small").deferred) == ([], PendingReason.BEHIND_HEAD)


@pytest.mark.parametrize("gang", [True, False])
def test_when_a_due_head_starts_the_one_that_it_kept_off_has_its_turn_before_all_others(gang: bool) -> None:
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    world.tell(joined("n1", 4), joined("n2", 4, labels={"disk": "a"}))
    submit(world, "of-ada", 4, tenant="ada", node_labels=("disk=a",))
    submit(world, "first", 4, tenant="eve")
    submit(world, "longest", 1, 2, tenant="ada", gang=gang, workers_min=None if gang else 1)
    world.pass_time(1_000)
    submit(world, "behind", 2, tenant="bob")
    world.pass_time(20_000)
    submit(world, "next", 2, tenant="ada")
    world.tell(finished("first", "n1"))
    assert world.nodes_of("longest") == ["n1", "n1"]
    assert world.nodes_of("behind") == ["n1"]


def test_a_due_head_that_stands_behind_another_one_of_its_tenant_keeps_nothing_from_others() -> None:
    """Also where it is the older one: its line tells which of them comes first."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    for node, labels in (("n1", {"disk": "a"}), ("n2", {"disk": "a", "zone": "b"}), ("n3", {"zone": "b"})):
        world.tell(joined(node, 4, labels=labels))
    for node in ("n1", "n2"):
        submit(world, f"first-{node}", 4, tenant="bob", node_labels=("disk=a",))
    submit(world, "part", 2, tenant="ada", node_labels=("zone=b", "disk!=a"))
    submit(world, "low", 4, node_labels=("zone=b",))
    world.pass_time(1_000)
    submit(world, "high", 4, 2, node_labels=("disk=a",), priority=1)
    world.pass_time(20_000)
    submit(world, "small", 2, tenant="eve")
    assert (world.job("low").status, world.job("high").status) == ("queued", "queued")
    assert world.nodes_of("small") == ["n3"]


def test_a_head_comes_not_earlier_by_an_older_one_of_its_tenant_that_waits_for_other_nodes() -> None:
    """Else a tenant with one old head could take what others have waited for longer, job by job."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    for disk in ("a", "b", "c"):
        world.tell(joined(f"n-{disk}", 4, labels={"disk": disk}))
        submit(world, f"first-{disk}", 4, node_labels=(f"disk={disk}",), tenant="eve")
    submit(world, "old", 4, node_labels=("disk=a",), tenant="bob")
    world.pass_time(1_000)
    submit(world, "waits", 4, node_labels=("disk=b",), tenant="ada")
    world.pass_time(11_000)
    submit(world, "young", 4, node_labels=("disk!=a",), tenant="bob", priority=1)
    world.pass_time(20_000)
    world.tell(finished("first-b", "n-b"))
    assert (world.nodes_of("waits"), world.nodes_of("young")) == (["n-b"], [])


def test_a_head_at_a_limit_of_several_tenants_keeps_nothing_that_a_job_of_its_own_tenant_before_it_would_take() -> None:
    """Each of them may use up what is left below the limit, on whatever nodes: so these need not be the same."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    world.tell(set_quotas(quota("lab", 8), quota("bob", None, parent="lab"), quota("ada", None, parent="lab")))
    for node, disk in (("n-a", "a"), ("n-b", "b"), ("n-c", "c"), ("n-d", "a")):
        world.tell(joined(node, 4, labels={"disk": disk}))
    submit(world, "first-b", 4, node_labels=("disk=b",), tenant="bob")
    submit(world, "first-c", 4, node_labels=("disk=c",), tenant="bob")
    submit(world, "old", 4, 2, node_labels=("disk=a",), tenant="bob")
    assert is_of_quota(world.job("old").deferred)
    world.pass_time(11_000)
    submit(world, "young", 4, node_labels=("disk=c",), tenant="bob", priority=1)
    submit(world, "next", 4, node_labels=("disk=b",), tenant="ada")
    world.tell(finished("first-b", "n-b"))
    assert (world.nodes_of("next"), world.nodes_of("old")) == (["n-b"], [])


@pytest.mark.parametrize("queue", ["line", "by-shares", "in-order"])
def test_a_tenant_with_an_old_head_does_not_pass_others_by_young_jobs_of_a_higher_priority(queue: str) -> None:
    """Wherever the old one waits, and however many young ones come."""
    fair = Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE)
    in_order = Queue(name="in-order", discipline=BACKFILL)
    world = world_of(fair, fair.model_copy(update={"name": "by-shares"}), in_order, wait_ms=10_000)
    for disk in ("a", "b", "c"):
        world.tell(joined(f"n-{disk}", 4, labels={"disk": disk}))
        submit(world, f"first-{disk}", 4, node_labels=(f"disk={disk}",), tenant="eve")
    submit(world, "old", 4, 2, node_labels=("disk=b|a",), tenant="bob", queue=queue)
    world.pass_time(1_000)
    submit(world, "waits", 4, node_labels=("disk=b",), tenant="ada")
    world.pass_time(11_000)
    for number in range(3):
        submit(world, f"young-{number}", 4, node_labels=("disk=b|c",), tenant="bob", priority=1)
    world.pass_time(20_000)
    world.tell(finished("first-b", "n-b"))
    assert world.nodes_of("waits") == ["n-b"]


def test_when_what_stands_before_an_old_head_of_its_tenant_has_started_the_head_keeps_its_room_at_once() -> None:
    """In the same walk: the next turn is that of another tenant."""
    world = world_of(Queue(name="line", discipline=BACKFILL, order=QueueOrder.FAIR_SHARE), wait_ms=10_000)
    for node, labels in (("n1", {"disk": "a"}), ("n2", {"disk": "a", "zone": "b"}), ("n3", {"zone": "b"})):
        world.tell(joined(node, 4, labels=labels))
    for node in ("n1", "n2", "n3"):
        submit(world, f"first-{node}", 4, tenant="eve")
    submit(world, "old", 4, 2, node_labels=("zone=b",), tenant="bob")
    world.pass_time(11_000)
    submit(world, "young", 2, node_labels=("disk=a",), tenant="bob", priority=1)
    submit(world, "other", 2, node_labels=("zone=b",), tenant="ada")
    world.tell(finished("first-n1", "n1"), finished("first-n3", "n3"))
    assert (world.nodes_of("young"), world.nodes_of("other")) == (["n1"], [])
    assert world.job("other").deferred is PendingReason.BEHIND_HEAD
