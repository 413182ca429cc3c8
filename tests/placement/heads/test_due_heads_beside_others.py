"""Due heads of a queue by shares that wait for some of the same nodes: what each of them keeps."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.events.fields.value import replace
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, quota, set_policy, set_quotas, spec_of

WAIT_MS = 3_000
BACKFILL = QueueDiscipline.BACKFILL


def world_of(
    *labels: str,
    queues: tuple[str, ...] = ("q",),
    tenants: tuple[str, ...] = ("ada", "bob", "eve"),
    order: QueueOrder = QueueOrder.FAIR_SHARE,
    memory_mib: int = 0,
) -> World:
    """Nodes of four GPUs, one of each of these labels; each queue backfills and goes by shares, or in this order."""
    part = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=10_000),),
        queues=tuple(Queue(name=name, order=order, discipline=BACKFILL) for name in queues),
    )
    world = World(CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in tenants)))
    world.tell(
        set_policy(backfill_wait_ms=WAIT_MS),
        *(joined(each, 4, memory_mib=memory_mib, labels={"at": each}) for each in labels),
    )
    return world


def job_of(world: World, job: str, gpus: int, *at: str, queue: str = "q", preemptible: bool = True) -> JobAdmitted:
    """A job (id that begins with the tenant) for nodes with one of these labels."""
    spec = spec_of(job, gpus, tenant=job.partition("-")[0], queue=queue, preemptible=preemptible)
    return admitted(replace(spec, node_labels=(f"at={'|'.join(at)}",)), world.now_ms)


def submit(world: World, job: str, gpus: int, *at: str, queue: str = "q", preemptible: bool = True) -> None:
    world.tell(job_of(world, job, gpus, *at, queue=queue, preemptible=preemptible))


def running(world: World) -> list[str]:
    return sorted(job.id for job in world.state.jobs.values() if job.workers)


@pytest.mark.parametrize("is_head", [True, False])
def test_an_own_job_that_waits_where_an_older_head_waits_takes_nothing_from_a_due_head_elsewhere(
    *, is_head: bool
) -> None:
    """The own job stands before the head, and can never use the node that is left to it."""
    world = world_of("old", "new", "mine")
    submit(world, "ada-0", 4, "mine")
    submit(world, "eve-0", 4, "old")
    if not is_head:
        submit(world, "eve-head", 4, "old")
    submit(world, "ada-before", 4, "old")
    world.pass_time(WAIT_MS)
    submit(world, "bob-0", 1, "new")
    submit(world, "ada-head", 4, "old", "new")
    world.pass_time(WAIT_MS)
    assert "ada-head" in world.state.heads
    submit(world, "bob-1", 1, "new")
    assert running(world) == ["ada-0", "bob-0", "eve-0"]
    told = why_not(world.state, world.job("bob-1"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is not None
    assert told.behind.job == "ada-head"
    world.tell(finished("bob-0", "new"))
    assert running(world) == ["ada-0", "ada-head", "eve-0"]


@pytest.mark.parametrize("order", list(QueueOrder))
def test_a_due_head_that_an_older_one_keeps_from_room_that_is_free_is_told_which(order: QueueOrder) -> None:
    world = world_of("a", "b", order=order)
    for job, gpus, at in (("eve-0", 2, "a"), ("eve-1", 2, "a"), ("eve-2", 4, "b"), ("ada-head", 4, "a")):
        submit(world, job, gpus, at)
    world.pass_time(10)
    submit(world, "bob-head", 2, "a", "b")
    world.pass_time(WAIT_MS)
    world.tell(finished("eve-0", "a"))
    world.pass_time(WAIT_MS)
    assert running(world) == ["eve-1", "eve-2"]
    told = why_not(world.state, world.job("bob-head"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is not None
    assert told.behind.job == "ada-head"


def test_a_due_head_that_one_of_a_higher_priority_keeps_from_room_that_is_free_is_told_which() -> None:
    """It came later."""
    world = world_of("a", "b", order=QueueOrder.FIFO)
    for job, gpus, at in (("eve-0", 2, "a"), ("eve-1", 2, "a"), ("eve-2", 4, "b")):
        submit(world, job, gpus, at)
    submit(world, "bob-head", 2, "a", "b")
    world.pass_time(10)
    head = job_of(world, "ada-head", 4, "a")
    world.tell(replace(head, spec=replace(head.spec, priority=1)))
    world.pass_time(WAIT_MS)
    world.tell(finished("eve-0", "a"))
    world.pass_time(WAIT_MS)
    assert running(world) == ["eve-1", "eve-2"]
    told = why_not(world.state, world.job("bob-head"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is not None
    assert told.behind.job == "ada-head"


@pytest.mark.parametrize(
    "more", [{}, {"priority": 1}, {"array": 2, "array_max_running": 1}, {"preemptible": False}, {"gang": False}]
)
def test_no_other_job_of_a_head_that_keeps_a_part_of_its_room_passes_the_head_that_has_waited_longer(
    more: dict[str, Any],
) -> None:
    world = world_of("old", "new")
    submit(world, "eve-0", 2, "old")
    submit(world, "eve-1", 2, "old")
    submit(world, "eve-2", 4, "new")
    submit(world, "ada-head", 4, "old")
    world.pass_time(WAIT_MS)
    submit(world, "bob-head", 2, "old", "new")
    world.pass_time(WAIT_MS)
    assert world.state.heads == {"ada-head": 0, "bob-head": WAIT_MS}
    world.tell(finished("eve-0", "old"))
    spec = spec_of("bob-more", 2, tenant="bob", queue="q", **more)
    world.tell(admitted(replace(spec, node_labels=("at=old|new",)), world.now_ms))
    assert running(world) == ["eve-1", "eve-2"]
    world.tell(finished("eve-1", "old"))
    assert running(world) == ["ada-head", "eve-2"]


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("is_firm", [True, False])
def test_a_due_head_that_its_tenants_quota_keeps_keeps_nothing_from_others_beside_an_older_head_either(
    *, is_firm: bool, is_restarted: bool
) -> None:
    """It is the limit, or the guarantee of one that may not be preempted."""
    world = world_of("old", "new", "mine")
    guaranteed = replace(quota("bob", None), guaranteed_milli=4_000)
    world.tell(set_quotas(guaranteed if is_firm else quota("bob", 4)))
    submit(world, "bob-0", 4, "mine", preemptible=not is_firm)
    submit(world, "eve-0", 4, "old")
    submit(world, "eve-1", 1, "new")
    submit(world, "ada-head", 4, "old")
    world.pass_time(WAIT_MS)
    submit(world, "bob-head", 4, "old", "new", preemptible=not is_firm)
    world.pass_time(WAIT_MS)
    assert "bob-head" in world.state.heads
    if is_restarted:
        world.restart()
    submit(world, "eve-2", 1, "new")
    assert running(world) == ["bob-0", "eve-0", "eve-1", "eve-2"]


def test_of_two_heads_of_the_same_moment_the_one_that_was_submitted_first_comes_first_whatever_the_shares() -> None:
    world = world_of("old", "new")
    submit(world, "eve-0", 4, "old")
    submit(world, "bob-0", 4, "new")
    submit(world, "bob-head", 4, "old")
    submit(world, "ada-head", 4, "old", "new")
    assert world.state.heads == {"bob-head": 0, "ada-head": 0}
    world.pass_time(WAIT_MS)
    world.tell(finished("eve-0", "old"))
    assert running(world) == ["bob-0", "bob-head"]


def test_a_due_head_of_an_earlier_queue_comes_before_one_that_has_waited_longer_in_a_later_queue() -> None:
    world = world_of("only", queues=("first", "second"))
    submit(world, "eve-0", 2, "only", queue="second")
    submit(world, "eve-1", 2, "only", queue="second")
    submit(world, "bob-head", 2, "only", queue="second")
    world.pass_time(WAIT_MS)
    submit(world, "ada-head", 4, "only", queue="first")
    world.pass_time(WAIT_MS)
    assert world.state.heads == {"bob-head": 0, "ada-head": WAIT_MS}
    world.tell(finished("eve-0", "only"))
    assert running(world) == ["eve-1"]


def test_many_due_heads_that_keep_a_part_of_their_room_start_together() -> None:
    """Each team has a node of its own, and could use the shared ones too, for which an older head waits."""
    shared, teams = [f"s{number}" for number in range(190)], [f"team{number}" for number in range(40)]
    world = world_of(*teams, tenants=(*teams, "eve", "zed"))
    world.tell(*(joined(each, 4, labels={"at": "shared"}) for each in shared))
    world.tell(*(job_of(world, f"eve-{each}", 3, "shared") for each in shared))
    world.tell(*(job_of(world, f"eve-{team}", 3, team) for team in teams))
    submit(world, "zed-head", 4, "shared")
    world.pass_time(WAIT_MS)
    world.tell(*(job_of(world, f"{team}-head", 4, "shared", team) for team in teams))
    world.pass_time(2 * WAIT_MS)
    assert len(world.state.heads) == 1 + len(teams)
    version = world.state.version
    world.tell(*(finished(f"eve-{team}", team) for team in teams))
    assert [job for job in running(world) if job.endswith("-head")] == sorted(f"{team}-head" for team in teams)
    assert world.state.version - version <= 3
