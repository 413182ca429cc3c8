"""Who is ahead: the order in which a walk would come to the jobs now, and the shares that it goes by."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.explain.fair_share import shares_of
from fallow.services.placement.explain.queue_position import jobs_before
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, quota, set_quotas, spec_of

FAIR = QueueOrder.FAIR_SHARE
HOUR_MS = 3_600_000


def world_of(queue: Queue, *jobs: tuple[str, str, int], half_life_ms: int = 0) -> World:
    """A cell of one full node, and jobs (id, tenant, priority) of one GPU that wait, each a second younger."""
    tenants = (Tenant(name="ada", quotas=(TenantQuota(weight=2),)), Tenant(name="bob"), Tenant(name="eve"))
    pools, policy = (Pool(name="train", gpus=8),), CellPolicy(fair_half_life_ms=half_life_ms)
    part = CellPart(name=CELL, ordinal=0, pools=pools, queues=(queue,), policy=policy)
    world = World(CellFile(cells=(part,), tenants=tenants))
    world.tell(joined("n1"))
    world.tell(admitted(spec_of("full", 8, tenant="bob", queue="q")))
    for number, (job, tenant, priority) in enumerate(jobs):
        world.tell(admitted(spec_of(job, tenant=tenant, priority=priority, queue="q"), 1_000 * number))
    return world


def before(world: World, job: str, queue: Queue) -> str:
    return " ".join(other.id for other in jobs_before(world.state, world.job(job), queue, world.now_ms))


@pytest.mark.parametrize(
    ("step_ms", "max_ms", "ahead"),
    [(0, 0, "d b a"), (500, 500, "a b"), (1_000, 2_000, "a b d"), (2_000, 3_000, "b a d"), (9_000, 99_000, "d b a")],
)
def test_in_a_plain_queue_those_are_ahead_whom_priority_and_waiting_put_there(
    step_ms: int, max_ms: int, ahead: str
) -> None:
    queue = Queue(name="q", aging_ms=step_ms, aging_max_ms=max_ms)
    world = world_of(queue, ("a", "ada", 0), ("b", "bob", 1), ("c", "eve", 0), ("d", "ada", 2))
    assert before(world, "c", queue) == ahead


def test_by_shares_the_turn_goes_round_as_if_each_had_started() -> None:
    queue = Queue(name="q", order=FAIR)
    jobs = [(f"{tenant[0]}{number}", tenant, 0) for number in range(3) for tenant in ("ada", "bob", "eve")]
    world = world_of(queue, *jobs)
    assert before(world, "b0", queue) == "a0 e0 a1 e1 a2 e2"
    assert before(world, "e1", queue) == "a0 e0 a1"
    world.tell(finished("full"))
    assert [job.id for job in world.state.jobs.values() if not job.workers] == ["e2"]


def test_why_a_job_waits_tells_the_share_of_its_tenant() -> None:
    queue = Queue(name="q", order=FAIR)
    world = world_of(queue, ("b0", "bob", 0), ("a0", "ada", 0))
    told = why_not(world.state, world.job("b0"), (queue,), 0)
    assert told.ahead.share is not None
    assert (told.ahead.first, told.ahead.share.tenant, told.ahead.share.share) == (("a0",), "bob", 10**9)
    plain = why_not(world.state, world.job("b0"), (Queue(name="q"),), 0)
    assert (plain.ahead.first, plain.ahead.share) == ((), None)


def test_in_a_strict_queue_a_tenant_at_its_limit_keeps_back_only_itself() -> None:
    queue = Queue(name="q", order=FAIR, discipline=QueueDiscipline.STRICT_FIFO)
    world = world_of(queue)
    world.tell(joined("n2", 2))
    world.tell(*(admitted(spec_of(f"{tenant}-runs", tenant=tenant, queue="q")) for tenant in ("ada", "eve")))
    world.tell(set_quotas(quota("ada", 1)))
    world.tell(*(admitted(spec_of(job, tenant="ada", queue="q")) for job in ("a0", "a1")))
    world.tell(*(admitted(spec_of(job, tenant="eve", queue="q")) for job in ("e0", "e1")))
    codes = {job: why_not(world.state, world.job(job), (queue,), 0).codes for job in ("a0", "a1", "e0", "e1")}
    assert PendingReason.BEHIND_HEAD not in codes["a0"] + codes["e0"]
    assert PendingReason.BEHIND_HEAD in codes["a1"]
    assert PendingReason.BEHIND_HEAD in codes["e1"]


def test_shares_are_told_in_their_order_with_what_they_are_made_of() -> None:
    world = world_of(Queue(name="q", order=FAIR), ("a0", "ada", 0), ("a1", "ada", 0), half_life_ms=HOUR_MS)
    world.pass_time(100)
    found = {tenant.tenant: tenant for tenant in shares_of(world.state, 24 * HOUR_MS)}
    assert list(found) == ["ada", "bob"]
    assert (found["ada"].share, found["ada"].waiting, found["ada"].waiting_milli) == (0, 2, 2_000)
    assert found["bob"].share == pytest.approx(10**9, rel=0.02)
    only: Any = found["bob"].types[0]
    assert (only.gpu_type, only.weight, only.held_milli, only.total_milli) == ("gpu", 1, 8_000, 8_000)
    assert only.lately_milli == pytest.approx(8_000, rel=0.02)
