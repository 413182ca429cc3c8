"""When a head keeps the others back no more, those behind it start at once, and wait for no other event."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.base import Event
from fallow.shared.events.operations import PlanMaintenance
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.replicas import all_start, service
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    joined,
    quota,
    set_policy,
    set_quotas,
    spec_of,
    started,
    update,
)

STRICT = QueueDiscipline.STRICT_FIFO


def world_of(*queues: Queue, tenants: tuple[Tenant, ...] = (Tenant(name="ada"), Tenant(name="bob"))) -> World:
    pools = (Pool(name="train", gpus=100), Pool(name="extra", gpus=100))
    world = World(CellFile(cells=(CellPart(name=CELL, ordinal=0, pools=pools, queues=queues),), tenants=tenants))
    world.listens = False  # no node reports here, and none is to be taken for silent
    return world


@pytest.mark.parametrize("change", [update("svc", workers=1), cancel("svc")], ids=["scaled down", "cancelled"])
def test_a_job_behind_a_service_starts_when_that_wants_no_more_replicas(change: Event) -> None:
    world = world_of(Queue(name="line", discipline=STRICT))
    world.tell(joined("n1", 4), joined("n2", 4))
    world.tell(admitted(spec_of("busy", 2, queue="line")))
    world.tell(admitted(service("svc", 2, 3, workers_min=1, queue="line")))
    all_start(world, "svc")
    world.tell(admitted(spec_of("behind", queue="line", tenant="bob")))
    assert world.job("behind").deferred is PendingReason.BEHIND_HEAD
    world.tell(change)
    assert world.job("behind").workers


@pytest.mark.parametrize("is_gang", [True, False])
def test_a_job_of_the_next_queue_starts_when_the_node_that_a_head_waits_for_closes_for_it(is_gang: bool) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(set_policy(default_run_estimate_ms=2_000), joined("n1", 4))
    world.tell(admitted(spec_of("busy", 2, queue="line")))
    world.tell(started("busy"), PlanMaintenance(cell=CELL, node="n1", begin_ms=10_000, end_ms=20_000))
    world.tell(admitted(spec_of("head", 4, queue="line", gang=is_gang)))
    world.tell(admitted(spec_of("short", 1, queue="next", tenant="bob", max_run_ms=1_000)))
    world.pass_time(8_000)
    assert world.job("head").deferred is PendingReason.NO_FREE_GPUS
    assert world.job("short").deferred is PendingReason.BEHIND_HEAD
    assert world.service.next_cell_ms() == 8_001
    world.pass_time(1)
    assert world.job("head").deferred is PendingReason.MAINTENANCE
    assert world.nodes_of("short") == ["n1"]


@pytest.mark.parametrize("is_gang", [True, False])
@pytest.mark.parametrize("of", ["line", "next"])
def test_a_job_behind_a_head_starts_on_a_node_when_that_closes_for_the_head(of: str, is_gang: bool) -> None:
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"))
    world.tell(set_policy(default_run_estimate_ms=2_000), joined("n1", 4), joined("n2", 4, labels={"closes": "later"}))
    world.tell(admitted(spec_of("busy", 2, queue="line", node_labels=("!closes",))))
    world.tell(admitted(spec_of("long", 2, queue="line", max_run_ms=20_000, node_labels=("closes",))))
    world.tell(started("busy"), started("long", "n2"))
    world.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=10_000, end_ms=20_000))
    world.tell(admitted(spec_of("head", 4, queue="line", gang=is_gang)))
    world.tell(admitted(spec_of("short", 1, queue=of, tenant="bob", max_run_ms=1_000, node_labels=("closes",))))
    world.pass_time(8_000)
    assert world.job("short").deferred is PendingReason.BEHIND_HEAD
    world.pass_time(1)
    assert world.job("head").deferred is PendingReason.NO_FREE_GPUS
    assert world.nodes_of("short") == ["n2"]


@pytest.mark.parametrize("is_gang", [True, False])
def test_a_job_behind_a_head_starts_when_that_comes_to_its_limit_by_a_start_in_the_next_queue(is_gang: bool) -> None:
    bob = Tenant(name="bob", quotas=(TenantQuota(limit=4),))
    world = world_of(Queue(name="line", discipline=STRICT), Queue(name="next"), tenants=(Tenant(name="ada"), bob))
    world.tell(joined("n1", 4), joined("n2", 4, pool="extra"))
    world.tell(admitted(spec_of("busy", 2, queue="line", pools=("train",))))
    world.tell(admitted(spec_of("head", 4, queue="line", tenant="bob", pools=("train",), gang=is_gang)))
    world.tell(admitted(spec_of("behind", 2, queue="line", pools=("train",))))
    assert world.job("behind").deferred is PendingReason.BEHIND_HEAD
    world.tell(admitted(spec_of("of-bob", 2, queue="next", tenant="bob", pools=("extra",))))
    assert world.job("head").deferred is PendingReason.QUOTA_REACHED
    assert world.nodes_of("behind") == ["n1"]


@pytest.mark.parametrize("order", QueueOrder)
def test_jobs_like_a_head_whose_limit_forbids_it_for_good_are_told_that(order: QueueOrder) -> None:
    """They stood behind it, and stand behind no job any more that is to start before them."""
    world = world_of(Queue(name="line", discipline=STRICT, order=order))
    world.tell(joined("n1", 8), admitted(spec_of("busy", 4, queue="line", tenant="bob")))
    for number, job in enumerate(("head", "like-1", "like-2")):
        world.tell(admitted(spec_of(job, 6, queue="line"), number))
    assert [world.job(job).deferred for job in ("like-1", "like-2")] == [PendingReason.BEHIND_HEAD] * 2
    world.tell(set_quotas(quota("ada", 5)))
    assert [world.job(job).deferred for job in ("head", "like-1", "like-2")] == [PendingReason.QUOTA_REACHED] * 3
    world.tell(set_quotas(quota("ada", 7)))
    assert [world.job(job).deferred for job in ("head", "like-1", "like-2")] == [
        PendingReason.NO_FREE_GPUS,
        PendingReason.BEHIND_HEAD,
        PendingReason.BEHIND_HEAD,
    ]
