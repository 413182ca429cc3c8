"""In a cell with idle room a head and an owner do not wait for each other: one of them starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import JobKind, JobSpec, Resources
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import CELL, World, admitted, finished, joined

HOUR_MS = 3_600_000


def world_of(*tenants: Tenant, queues: tuple[Queue, ...], pools: Sequence[str] = ("train",)) -> World:
    policy = CellPolicy(node_lease_wall_ms=10**7, backfill_wait_ms=60_000)
    named = tuple(Pool(name=name, gpus=20) for name in pools)
    part = CellPart(name=CELL, ordinal=0, pools=named, queues=queues, policy=policy)
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.listens = False
    return world


def gpus(count: float, cpu_milli: int = 0, memory_mib: int = 0) -> Resources:
    return Resources(gpu_milli=int(count * 1_000), cpu_milli=cpu_milli, memory_mib=memory_mib)


def runs(world: World, job: str) -> bool:
    return world.state.jobs[job].status is JobStatus.STARTING


@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL])
def test_an_exclusive_head_for_which_kept_places_alone_would_be_few_enough_waits_for_these_and_for_no_quota(
    discipline: QueueDiscipline,
) -> None:
    unlent = Tenant(name="bob", quotas=(TenantQuota(guaranteed=6, lends=False),))
    owner = Tenant(name="fay", quotas=(TenantQuota(guaranteed=3),))
    queues = (Queue(name="q", discipline=discipline), Queue(name="later"))
    world = world_of(Tenant(name="lab"), unlent, owner, queues=queues)
    small = joined("a", 4, memory_mib=1_000, labels={"zone": "a"})
    world.tell(small, joined("b", 8, memory_mib=3_000), joined("c", 8, memory_mib=1_000))
    on_a = ("zone=a",)
    world.tell(admitted(JobSpec(id="busy", tenant="lab", queue="q", resources=gpus(1), node_labels=on_a), 1))
    world.tell(admitted(JobSpec(id="fay", tenant="fay", queue="later", resources=gpus(4), node_labels=on_a), 2))
    alone = JobSpec(id="alone", tenant="lab", queue="q", workers=4, exclusive=True, resources=gpus(1, 0, 1_000))
    world.tell(admitted(alone, 3))
    world.pass_time(HOUR_MS)
    world.tell(finished("busy", "a"))
    world.pass_time(HOUR_MS)
    assert runs(world, "fay")


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL])
def test_an_exclusive_head_that_borrows_nothing_has_the_kept_places_where_all_others_are_too_much(
    discipline: QueueDiscipline, preemptible: bool
) -> None:
    unlent = Tenant(name="bob", quotas=(TenantQuota(guaranteed=5, lends=False),))
    ada = Tenant(name="ada", quotas=(TenantQuota(guaranteed=4),))
    fay = Tenant(name="fay", quotas=(TenantQuota(guaranteed=4),))
    queues = (Queue(name="q", discipline=discipline), Queue(name="later"))
    world = world_of(Tenant(name="lab"), unlent, ada, fay, queues=queues)
    world.tell(joined("a", 4, labels={"zone": "a"}), joined("b", 8))
    on_a = ("zone=a",)
    world.tell(admitted(JobSpec(id="busy", tenant="lab", queue="q", resources=gpus(1), node_labels=on_a), 1))
    world.tell(admitted(JobSpec(id="fay", tenant="fay", queue="later", resources=gpus(4), node_labels=on_a), 2))
    alone = JobSpec(
        id="alone", tenant="ada", queue="q", exclusive=True, preemptible=preemptible, resources=gpus(1, 0, 0)
    )
    world.tell(admitted(alone, 3))
    world.pass_time(HOUR_MS)
    world.tell(finished("busy", "a"))
    world.pass_time(HOUR_MS)
    assert runs(world, "fay") or runs(world, "alone")


@pytest.mark.parametrize("priority", [-1, 0])
def test_a_due_head_keeps_nothing_from_an_owner_while_one_that_stands_before_it_waits_for_the_owners_places(
    priority: int,
) -> None:
    queue = Queue(name="q", discipline=QueueDiscipline.BACKFILL, order=QueueOrder.FAIR_SHARE)
    world = world_of(Tenant(name="lab"), Tenant(name="fay", quotas=(TenantQuota(guaranteed=8),)), queues=(queue,))
    world.tell(joined("n1", 8, cpu_milli=9_000), joined("n2", 4, cpu_milli=9_000))
    world.tell(*(admitted(JobSpec(id=f"busy{n}", tenant="lab", resources=gpus(12 - 4 * n)), 1) for n in (1, 2)))
    world.tell(admitted(JobSpec(id="low", tenant="lab", priority=priority, resources=gpus(1)), 2))
    world.pass_time(1_000)
    world.tell(admitted(JobSpec(id="high", tenant="lab", workers=4, resources=gpus(0.3, 4_000)), 4))
    world.pass_time(HOUR_MS)
    singly = JobSpec(id="fay", tenant="fay", workers=3, gang=False, workers_min=1, resources=gpus(8))
    world.tell(admitted(singly, world.now_ms))
    world.pass_time(1_000)
    for job, node in (("busy1", "n1"), ("busy2", "n2")):
        world.hand_over(finished(job, node))
    world.rest()
    world.pass_time(HOUR_MS)
    assert any(runs(world, job) for job in ("low", "high", "fay"))


@pytest.mark.parametrize("kind", [JobKind.TRAINING, JobKind.INFERENCE])
@pytest.mark.parametrize(("workers", "gang"), [(2, False), (5, False), (1, True)])
def test_an_owner_whose_next_worker_fits_into_its_guarantee_passes_a_head_that_would_borrow_it(
    kind: JobKind, workers: int, gang: bool
) -> None:
    queue = Queue(name="q", discipline=QueueDiscipline.BACKFILL)
    world = world_of(Tenant(name="lab"), Tenant(name="fay", quotas=(TenantQuota(guaranteed=8),)), queues=(queue,))
    world.tell(joined("n1", 8), joined("n2", 8))
    world.tell(admitted(JobSpec(id="endless", tenant="lab", resources=gpus(8)), 1))
    world.tell(admitted(JobSpec(id="head", tenant="lab", workers=2, resources=gpus(8)), 2))
    world.pass_time(HOUR_MS)
    world.tell(admitted(JobSpec(id="fay", tenant="fay", kind=kind, workers=workers, gang=gang, resources=gpus(8)), 3))
    world.pass_time(1_000)
    assert runs(world, "fay")
    assert world.state.jobs["head"].deferred is PendingReason.NO_FREE_GPUS


def of_large(guaranteed: int, *, lends: bool) -> tuple[TenantQuota, ...]:
    return (TenantQuota(gpu_type="large", guaranteed=guaranteed, lends=lends),)


LARGE = (Tenant(name="eve", quotas=of_large(2, lends=False)), Tenant(name="fay", quotas=of_large(4, lends=True)))
LIMIT = Tenant(name="lab", quotas=(TenantQuota(gpu_type="small", limit=2),))
UNLENT = Tenant(name="bob", quotas=(TenantQuota(gpu_type="small", guaranteed=8, lends=False),))
STRICT, BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL
CIRCLES = pytest.mark.parametrize(
    ("queue", "owners_queue", "owners_gpus"),
    [
        (Queue(name="q", discipline=STRICT, order=QueueOrder.FAIR_SHARE), "q", 4),
        (Queue(name="q", discipline=BACKFILL), "q", 6),
        (Queue(name="q", discipline=STRICT), "later", 6),
    ],
)
"""The queue of a head, and an owner's job that the head lets pass only if it knows that it waits for the owner."""


@pytest.mark.parametrize("is_gang", [True, False])
@pytest.mark.parametrize("of_small", [(LIMIT,), (Tenant(name="lab"), UNLENT)])
@pytest.mark.parametrize("types", [("large", "small"), ("small", "large")])
@CIRCLES
def test_an_owner_passes_a_head_that_a_quota_keeps_from_one_type_of_a_pool_and_the_owner_from_the_other(
    queue: Queue,
    owners_queue: str,
    owners_gpus: int,
    types: tuple[str, str],
    of_small: tuple[Tenant, ...],
    is_gang: bool,
) -> None:
    world = world_of(*of_small, *LARGE, queues=(queue, Queue(name="later")))
    world.tell(*(joined(f"n{at}", 8, gpu_type=each) for at, each in enumerate(types)))
    world.tell(admitted(JobSpec(id="busy", tenant="eve", gpu_type="large", resources=gpus(8)), 1))
    world.tell(admitted(JobSpec(id="head", tenant="lab", queue="q", gang=is_gang, resources=gpus(4)), 2))
    own = JobSpec(id="own", tenant="fay", queue=owners_queue, gpu_type="large", resources=gpus(owners_gpus))
    world.tell(admitted(own, 3))
    world.pass_time(HOUR_MS)
    world.tell(finished("busy", f"n{types.index('large')}"))
    assert runs(world, "own")


def up_to(large: int | None, small: int | None) -> Tenant:
    quotas = (TenantQuota(gpu_type="large", limit=large), TenantQuota(gpu_type="small", limit=small))
    return Tenant(name="lab", quotas=quotas)


@pytest.mark.parametrize(
    ("tenant", "workers"), [(up_to(None, None), 2), (up_to(None, None), 4), (up_to(8, 8), 2), (up_to(8, 12), 4)]
)
@pytest.mark.parametrize("pools", [("large", "small"), ("small", "large")])
@CIRCLES
def test_an_owner_passes_a_service_that_has_room_in_several_pools_but_for_the_owners_places(
    queue: Queue, owners_queue: str, owners_gpus: int, pools: tuple[str, str], tenant: Tenant, workers: int
) -> None:
    fay = Tenant(name="fay", quotas=of_large(4, lends=True))
    world = world_of(tenant, fay, Tenant(name="bob"), queues=(queue, Queue(name="later")), pools=pools)
    world.tell(*(joined(name, 8, gpu_type=name, pool=name) for name in pools))
    world.tell(admitted(JobSpec(id="busy", tenant="bob", gpu_type="large", resources=gpus(8)), 1))
    service: dict[str, Any] = {"kind": JobKind.INFERENCE, "gang": False, "workers": workers, "workers_min": workers}
    world.tell(admitted(JobSpec(id="head", tenant="lab", queue="q", resources=gpus(16 // workers), **service), 2))
    own = JobSpec(id="own", tenant="fay", queue=owners_queue, gpu_type="large", resources=gpus(owners_gpus))
    world.tell(admitted(own, 3))
    world.pass_time(HOUR_MS)
    world.tell(finished("busy", "large"))
    assert runs(world, "own") or runs(world, "head")
