"""A queue in fair-share order: whose turn it is, what a job that does not fit keeps back, and what time changes."""

from __future__ import annotations

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.explain.queue_position import jobs_before, turns_of
from fallow.services.placement.queue.fair_share_timer import FairShareTimer
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.fair_use import FADED_TICKS, FairUse
from fallow.shared.events.fields.value import replace
from fallow.shared.events.operations import CellPolicy, Cordon, HoldJob, ReleaseJob, ReloadCell, Uncordon
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    finished,
    joined,
    quota,
    set_policy,
    set_quotas,
    spec_of,
    update,
)

STRICT, BEST, BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.BACKFILL
HALF_LIFE_MS = 64_000


def part_of(
    discipline: QueueDiscipline,
    half_life_ms: int = 0,
    order: QueueOrder = QueueOrder.FAIR_SHARE,
    behind: tuple[Queue, ...] = (),
) -> CellPart:
    """A cell of this queue, and of those `behind` it."""
    queues = (Queue(name="q", order=order, discipline=discipline), *behind)
    policy = CellPolicy(fair_half_life_ms=half_life_ms)
    return CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=64),), queues=queues, policy=policy)


def world_of(
    discipline: QueueDiscipline, gpus: int = 4, half_life_ms: int = 0, behind: tuple[Queue, ...] = ()
) -> World:
    """A cell of one node, with these queues behind the fair one."""
    tenants = tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))
    world = World(CellFile(cells=(part_of(discipline, half_life_ms, behind=behind),), tenants=tenants))
    world.tell(joined("n1", gpus))
    return world


def submit(world: World, *jobs: tuple[str, int]) -> None:
    """Jobs (id that begins with the tenant, GPUs), all at once."""
    world.tell(*(admitted(spec_of(job, gpus, tenant=job.split("-")[0], queue="q")) for job, gpus in jobs))


def running(world: World) -> list[str]:
    return sorted(job.id for job in world.state.jobs.values() if job.workers)


def test_turns_go_round_within_one_walk() -> None:
    world = world_of(BEST)
    submit(world, *((f"{tenant}-{number}", 1) for tenant in ("ada", "bob") for number in range(4)))
    assert running(world) == ["ada-0", "ada-1", "bob-0", "bob-1"]


@pytest.mark.parametrize("discipline", list(QueueDiscipline))
@pytest.mark.parametrize(("limit", "is_preemptible", "bobs"), [(1, True, 1), (None, False, 0)])
def test_who_has_the_next_turn_is_held_to_his_own_quota(
    discipline: QueueDiscipline, limit: int | None, bobs: int, *, is_preemptible: bool
) -> None:
    """Tenants take turns with jobs that need the same. As many of the first one's as fit find places at once; fewer of
    the second one's may start: he has a limit, or jobs that may not be preempted while all is guaranteed to a third.
    """
    world = world_of(discipline, gpus=8)
    world.tell(set_quotas(quota("bob", limit), quota("ada", None), replace(quota("eve", None), guaranteed_milli=8_000)))
    for_ada = [spec_of(f"ada-{number}", queue="q") for number in range(4)]
    for_bob = [replace(job, id=f"bob-{job.id}", tenant="bob", preemptible=is_preemptible) for job in for_ada]
    world.tell(*map(admitted, [*for_ada, *for_bob]))
    assert running(world) == [job.id for job in [*for_ada, *for_bob[:bobs]]]


def test_where_jobs_may_pass_the_turn_stays_with_the_tenant_whose_job_does_not_fit() -> None:
    world = world_of(BEST)
    submit(world, ("ada-0", 8), ("ada-1", 1), ("ada-2", 8), ("ada-3", 1), ("bob-0", 3), ("bob-1", 1))
    assert running(world) == ["ada-1", "bob-0"]


@pytest.mark.parametrize(("discipline", "started"), [(STRICT, ["ada-0"]), (BEST, ["ada-0", "eve-0"])])
def test_in_a_strict_queue_a_job_without_room_keeps_all_back(discipline: QueueDiscipline, started: list[str]) -> None:
    world = world_of(discipline)
    submit(world, ("ada-0", 1), ("ada-1", 1), ("bob-0", 4), ("eve-0", 3))
    assert running(world) == started
    codes = {job.id: job.deferred for job in world.state.jobs.values()}
    assert codes["bob-0"] is PendingReason.NO_FREE_GPUS
    assert (codes.get("eve-0") is PendingReason.BEHIND_HEAD) == (discipline is STRICT)


def test_in_a_strict_queue_a_job_at_a_limit_keeps_back_only_its_tenant() -> None:
    world = world_of(STRICT)
    world.tell(set_quotas(quota("ada", 2)))
    submit(world, ("ada", 1))
    submit(world, ("ada-0", 2), ("ada-1", 1), ("bob-0", 1), ("bob-1", 1))
    assert running(world) == ["ada", "bob-0", "bob-1"]
    codes = {job.id: job.deferred for job in world.state.jobs.values()}
    assert (codes["ada-0"], codes["ada-1"]) == (PendingReason.QUOTA_REACHED, PendingReason.BEHIND_HEAD)


@pytest.mark.parametrize(("discipline", "started"), [(STRICT, ["ada-0", "bob-0"]), (BEST, ["ada-0", "ada-1", "bob-0"])])
def test_in_a_strict_queue_a_job_that_lacks_workers_stays_its_tenant_s_next_one(
    discipline: QueueDiscipline, started: list[str]
) -> None:
    world = world_of(discipline, gpus=8)
    world.tell(admitted(spec_of("bob-0", 1, tenant="bob", queue="q")))
    singly = spec_of("ada-0", 2, workers=4, gang=False, tenant="ada", queue="q")
    world.tell(admitted(singly), admitted(spec_of("ada-1", 1, tenant="ada", queue="q")))
    assert (running(world), len(world.job("ada-0").workers)) == (started, 3)


def test_time_alone_may_put_another_job_first_and_it_starts_by_itself() -> None:
    world = world_of(STRICT, half_life_ms=6_400)
    submit(world, ("ada-0", 4))
    world.pass_time(10_000)
    world.tell(finished("ada-0"))
    submit(world, ("bob-0", 2))
    submit(world, ("bob-1", 4), ("ada-1", 2))
    assert running(world) == ["bob-0"]
    assert world.service.next_cell_ms() == 10_100
    world.pass_time(12_800)
    assert running(world) == ["ada-1", "bob-0"]


def changed_to(world: World, half_life_ms: int, *, by_reload: bool) -> None:
    """The half-life is another one, by an operator or by a new cell file."""
    if not by_reload:
        world.tell(set_policy(fair_half_life_ms=half_life_ms))
        return
    part = part_of(world.file.cells[0].queues[0].discipline, half_life_ms)
    world.file = world.file_read = world.file.model_copy(update={"cells": (part,)})
    world.tell(ReloadCell(cell=CELL))


@pytest.mark.parametrize("by_reload", [False, True])
def test_who_comes_first_once_nothing_is_remembered_starts_at_once(*, by_reload: bool) -> None:
    """Bob holds nothing and has used much. Ada holds little, and a large job of hers keeps him back."""
    world = world_of(STRICT, half_life_ms=6_400_000)
    world.listens = False
    submit(world, ("bob-0", 4))
    world.pass_time(3_000_000)
    world.tell(finished("bob-0"))
    submit(world, ("ada-0", 1))
    submit(world, ("ada-1", 4), ("bob-1", 1))
    assert running(world) == ["ada-0"]
    changed_to(world, 0, by_reload=by_reload)
    assert running(world) == ["ada-0", "bob-1"]


@pytest.mark.parametrize("by_reload", [False, True])
def test_who_comes_first_by_another_half_life_starts_at_once(*, by_reload: bool) -> None:
    """Bob has used more than ada. As that is of this tick of the long half-life, it does not count yet."""
    world = world_of(STRICT, half_life_ms=64_000_000)
    world.listens = False
    submit(world, ("bob-0", 4))
    world.pass_time(500_000)
    world.tell(finished("bob-0"))
    submit(world, ("eve-0", 3))
    submit(world, ("bob-1", 4), ("ada-0", 1))
    assert running(world) == ["eve-0"]
    changed_to(world, 6_400_000, by_reload=by_reload)
    assert running(world) == ["ada-0", "eve-0"]


def timer_of(
    discipline: QueueDiscipline, order: QueueOrder, half_life_ms: int, used_ms: int = 2_000
) -> tuple[FairShareTimer, CellState]:
    """A timer that has walked at no time yet, in a cell in which a job began to hold something at `used_ms`."""
    timer, state = FairShareTimer(part_of(discipline, half_life_ms, order)), CellState(CELL)
    state.fair = FairUse(half_life_ms)
    state.fair.follow(half_life_ms, {("ada", "gpu"): 1_000}, used_ms)
    return timer, state


@pytest.mark.parametrize(
    ("discipline", "order", "half_life_ms", "are_rivals", "due_ms"),
    [
        (STRICT, QueueOrder.FAIR_SHARE, HALF_LIFE_MS, True, 3_000),
        (BACKFILL, QueueOrder.FAIR_SHARE, HALF_LIFE_MS, True, 3_000),
        (BEST, QueueOrder.FAIR_SHARE, HALF_LIFE_MS, True, None),
        (STRICT, QueueOrder.FIFO, HALF_LIFE_MS, True, None),
        (STRICT, QueueOrder.FAIR_SHARE, 0, True, None),
        (STRICT, QueueOrder.FAIR_SHARE, HALF_LIFE_MS, False, None),
    ],
)
def test_a_walk_is_due_at_the_next_tick_where_an_order_may_change_by_itself(
    discipline: QueueDiscipline, order: QueueOrder, half_life_ms: int, *, are_rivals: bool, due_ms: int | None
) -> None:
    timer, state = timer_of(discipline, order, half_life_ms)
    timer.walked(2_500)
    assert timer.next_cell_ms(state, are_rivals=are_rivals) == due_ms
    found = [timer.is_due(state, now_ms, are_rivals=are_rivals) for now_ms in (2_999, 3_000)]
    assert found == [False, due_ms is not None]


def test_no_walk_is_due_any_more_when_no_tick_changes_what_counts_as_used() -> None:
    timer, state = timer_of(STRICT, QueueOrder.FAIR_SHARE, HALF_LIFE_MS)
    settled_ms = 2_000 + FADED_TICKS * 1_000
    timer.walked(settled_ms - 1)
    assert timer.next_cell_ms(state, are_rivals=True) == settled_ms
    timer.walked(settled_ms)
    assert timer.next_cell_ms(state, are_rivals=True) is None
    state.fair.follow(HALF_LIFE_MS, {}, settled_ms + 10)
    assert timer.next_cell_ms(state, are_rivals=True) == settled_ms + 1_000


@pytest.mark.parametrize(("half_life_ms", "due_ms"), [(1, 2_600), (640, 2_600), (6_400, 2_600), (64 * 60, 2_520)])
def test_ticks_of_a_short_half_life_are_passed_over_so_that_walks_are_some_time_apart(
    half_life_ms: int, due_ms: int
) -> None:
    timer, state = timer_of(STRICT, QueueOrder.FAIR_SHARE, half_life_ms, used_ms=2_500)
    timer.walked(2_500)
    assert timer.next_cell_ms(state, are_rivals=True) == due_ms
    timer.walked(due_ms)
    apart_ms = (timer.next_cell_ms(state, are_rivals=True) or 0) - due_ms
    assert 100 <= apart_ms < 200


def test_while_jobs_of_one_tenant_alone_wait_no_walk_is_due() -> None:
    world = world_of(STRICT, half_life_ms=HALF_LIFE_MS)
    submit(world, ("ada-0", 4))
    submit(world, ("bob-0", 2), ("bob-1", 2))
    assert world.service.next_cell_ms() is None
    submit(world, ("eve-0", 2))
    assert world.service.next_cell_ms() == 1_000


def test_a_head_that_is_due_is_passed_by_no_tenant_whatever_its_share() -> None:
    """One tenant holds most and waits with a large job. Others, whose turn always comes first, ask for little."""
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("ada-0", 3))
    submit(world, ("ada-1", 4))
    submit(world, ("bob-0", 1))
    assert running(world) == ["ada-0", "bob-0"]
    world.pass_time(10_000)
    submit(world, ("eve-0", 1))
    world.tell(finished("bob-0"))
    submit(world, ("eve-1", 1), ("bob-1", 1))
    assert running(world) == ["ada-0"]
    assert world.job("eve-0").deferred is PendingReason.BEHIND_HEAD
    world.tell(finished("ada-0"))
    assert running(world) == ["ada-1"]


def test_when_a_head_that_is_due_starts_the_next_one_that_is_due_is_passed_by_no_tenant_either() -> None:
    """Nor by the tenant of the first one, which that one has not kept back."""
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("ada-0", 3))
    submit(world, ("bob-0", 1))
    submit(world, ("ada-1", 3))
    submit(world, ("bob-1", 2))
    world.pass_time(10_000)
    submit(world, ("ada-2", 1))
    world.tell(finished("ada-0"), finished("bob-0"))
    assert running(world) == ["ada-1"]
    world.tell(finished("ada-1"))
    assert running(world) == ["ada-2", "bob-1"]


def test_a_head_that_is_due_is_not_passed_by_its_own_tenant_either_where_a_newer_head_came_before_it() -> None:
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("eve-0", 2))
    submit(world, ("ada-0", 3))
    world.pass_time(10_000)
    world.tell(admitted(spec_of("ada-1", 4, tenant="ada", queue="q", priority=1)))
    submit(world, ("ada-2", 1))
    assert running(world) == ["eve-0"]
    waits = [world.job(job).deferred for job in ("ada-0", "ada-1", "ada-2")]
    assert waits == [PendingReason.NO_FREE_GPUS, PendingReason.NO_FREE_GPUS, PendingReason.BEHIND_HEAD]
    world.tell(admitted(spec_of("ada-3", 1, tenant="ada", queue="q", priority=2)))
    assert running(world) == ["ada-3", "eve-0"]


def test_a_head_that_is_due_at_the_limit_of_its_parent_is_passed_by_no_sibling_whatever_its_share() -> None:
    world = world_of(BACKFILL, 8)
    world.tell(set_policy(backfill_wait_ms=10_000))
    world.tell(set_quotas(quota("lab", 4), quota("ada", None, "lab"), quota("bob", None, "lab")))
    submit(world, ("ada-0", 2), ("bob-0", 1), ("bob-1", 1))
    submit(world, ("ada-1", 2))
    world.pass_time(10_000)
    submit(world, ("bob-2", 1), ("eve-0", 1))
    world.tell(finished("bob-0"))
    assert running(world) == ["ada-0", "bob-1", "eve-0"]
    assert [world.job(job).deferred for job in ("ada-1", "bob-2")] == [
        PendingReason.QUOTA_REACHED,
        PendingReason.BEHIND_HEAD,
    ]
    world.tell(finished("bob-1"))
    assert running(world) == ["ada-0", "ada-1", "eve-0"]


def test_when_a_head_that_is_due_starts_those_that_it_kept_back_come_before_a_queue_behind() -> None:
    """The turn of another tenant came first, whose job the head has kept back."""
    world = world_of(BACKFILL, 5, behind=(Queue(name="late"),))
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("ada-0", 1), ("eve-0", 4))
    submit(world, ("ada-1", 2))
    world.pass_time(10_000)
    submit(world, ("bob-0", 2))
    world.tell(admitted(spec_of("late", 2, tenant="eve", queue="late")))
    world.tell(finished("eve-0"))
    assert running(world) == ["ada-0", "ada-1", "bob-0"]


FAMILY = (("ada-0", 1, 0), ("bob-0", 2, 0), ("eve-0", 3, 0), ("bob-1", 1, 1), ("eve-1", 1, 2))
"""Jobs (id, GPUs, when it comes). Bob stands below ada, who has no job left when both families have equal shares."""


def family(gpus: int = 7) -> World:
    world = world_of(BEST, gpus)
    world.tell(set_quotas(quota("ada", None), quota("bob", None, "ada")))
    return world


def test_of_equal_shares_the_next_job_of_a_family_decides_though_one_of_it_with_a_smaller_share_has_none() -> None:
    world = family()
    jobs = [(spec_of(job, gpus, tenant=job[:3], queue="q"), at_ms) for job, gpus, at_ms in FAMILY]
    world.tell(*(admitted(spec, at_ms) for spec, at_ms in jobs))
    assert running(world) == ["ada-0", "bob-0", "bob-1", "eve-0"]


def test_that_order_is_told_too() -> None:
    world = family()
    world.tell(Cordon(cell=CELL, node="n1"))
    for job, gpus, at_ms in FAMILY:
        world.tell(admitted(spec_of(job, gpus, tenant=job[:3], queue="q"), at_ms))
    turns = turns_of(world.state, part_of(BEST).queues[0], world.state.jobs.values(), 0)
    assert [job.id for job in turns] == ["ada-0", "eve-0", "bob-0", "bob-1", "eve-1"]


@pytest.mark.parametrize("discipline", list(QueueDiscipline))
@pytest.mark.parametrize("was_met", [True, False])
def test_elements_whose_array_may_have_no_more_decide_no_tie(discipline: QueueDiscipline, *, was_met: bool) -> None:
    """Ada's next job is the one that came first of all, whether or not a walk has met the element before it."""
    world = world_of(discipline, gpus=3)
    array = replace(spec_of("ada-a", tenant="ada", queue="q", priority=9), array=2, array_max_running=1)
    world.tell(admitted(array, 5), admitted(spec_of("eve-0", tenant="eve", queue="q"), 0))
    world.tell(Cordon(cell=CELL, node="n1"))
    world.tell(
        *(admitted(spec_of(job, tenant=job[:3], queue="q"), at_ms) for job, at_ms in (("ada-0", 0), ("eve-1", 3)))
    )
    turns = jobs_before(world.state, world.job("eve-1"), part_of(discipline).queues[0], 0)
    assert [job.id for job in turns] == ["ada-0"]
    if not was_met:
        world.restart()
    world.tell(Uncordon(cell=CELL, node="n1"))
    assert running(world) == ["ada-0", "ada-a.0", "eve-0"]


def test_a_job_like_the_due_head_that_has_started_is_kept_back_by_the_next_one_that_is_due() -> None:
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("ada-0", 3))
    submit(world, ("bob-0", 1))
    submit(world, ("ada-1", 2))
    submit(world, ("bob-1", 3))
    world.pass_time(10_000)
    submit(world, ("ada-2", 2))
    world.tell(finished("ada-0"), finished("bob-0"))
    assert running(world) == ["ada-1"]


def test_of_two_heads_that_are_due_the_one_that_has_waited_longest_is_next_whose_turn_it_ever_is() -> None:
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=10_000))
    submit(world, ("bob-0", 3), ("ada-0", 1))
    submit(world, ("ada-1", 4))
    world.tell(HoldJob(cell=CELL, job="ada-1"))
    submit(world, ("bob-1", 4))
    world.pass_time(5_000)
    world.tell(ReleaseJob(cell=CELL, job="ada-1"))
    assert {job: world.state.heads[job] for job in ("ada-1", "bob-1")} == {"ada-1": 5_000, "bob-1": 0}
    world.pass_time(10_000)
    world.tell(finished("ada-0"), finished("bob-0"))
    assert running(world) == ["bob-1"]


def with_labels(*labels: str, wait_ms: int) -> World:
    """Nodes of four GPUs, one of each of these labels."""
    world = world_of(BACKFILL)
    world.tell(set_policy(backfill_wait_ms=wait_ms), *(joined(each, 4, labels={each: "1"}) for each in labels))
    world.tell(Cordon(cell=CELL, node="n1"))
    return world


def submit_on(world: World, job: str, gpus: int, *labels: str, priority: int = 0) -> None:
    spec = spec_of(job, gpus, tenant=job[:3], queue="q", priority=priority)
    world.tell(admitted(replace(spec, node_labels=labels), world.now_ms))


def test_a_due_head_is_not_passed_because_a_newer_head_came_before_it_that_waits_for_other_nodes_too() -> None:
    """It stands behind one of its own tenant until that starts. Eve's head is due as soon as it is one."""
    world = with_labels("old", "one", "two", wait_ms=0)
    submit_on(world, "bob-0", 1, "old")
    submit_on(world, "eve-0", 4, "one")
    submit_on(world, "eve-1", 4, "two")
    submit_on(world, "ada-late", 4)
    submit_on(world, "eve-head", 4, "old")
    submit_on(world, "ada-first", 4, "!old", priority=-1)
    submit_on(world, "bob-1", 4, "!old")
    world.tell(update("ada-first", "ada", priority=1))
    world.pass_time(1_000)
    world.tell(finished("eve-0", "one"), finished("eve-1", "two"))
    assert running(world) == ["ada-first", "ada-late", "bob-0"]


def test_a_due_head_behind_one_that_has_waited_longer_is_passed_by_no_tenant_on_its_other_nodes() -> None:
    world = with_labels("old", "new", wait_ms=10_000)
    submit_on(world, "eve-0", 1, "old")
    submit_on(world, "bob-head", 4, "old")
    submit_on(world, "ada-0", 3, "new")
    world.pass_time(10_000)
    submit_on(world, "ada-head", 4)
    world.pass_time(10_000)
    assert world.state.heads == {"bob-head": 0, "ada-head": 10_000}
    submit_on(world, "bob-1", 1, "new")
    assert running(world) == ["ada-0", "eve-0"]
    assert world.job("bob-1").deferred is PendingReason.BEHIND_HEAD
    told = why_not(world.state, world.job("bob-1"), world.file.cells[0].queues, world.now_ms)
    assert told.behind is not None
    assert told.behind.job == "ada-head"
    world.tell(finished("ada-0", "new"))
    assert world.nodes_of("ada-head") == ["new"]


def test_a_due_head_comes_before_a_newer_one_once_no_job_of_its_tenant_stands_before_it() -> None:
    world = with_labels("old", "new", "spare", wait_ms=0)
    for number, label in enumerate(("old", "new", "spare")):
        submit_on(world, f"eve-{number}", 4, label)
    submit_on(world, "ada-late", 4, "!spare")
    submit_on(world, "ada-first", 4, "old", priority=1)
    world.pass_time(1_000)
    submit_on(world, "bob-head", 4, "!old")
    assert [job for job in world.state.heads if job != "ada-first"] == ["ada-late", "bob-head"]
    world.tell(finished("eve-0", "old"), finished("eve-1", "new"))
    assert running(world) == ["ada-first", "ada-late", "eve-2"]


def test_when_a_due_head_starts_one_that_was_due_behind_it_keeps_what_is_left_on_its_node() -> None:
    world = with_labels("old", "new", wait_ms=10_000)
    submit_on(world, "eve-0", 3, "old")
    submit_on(world, "bob-head", 2, "old")
    submit_on(world, "ada-0", 3, "new")
    world.pass_time(10_000)
    submit_on(world, "ada-head", 2)
    submit_on(world, "eve-1", 2, "old")
    world.pass_time(10_000)
    world.tell(finished("eve-0", "old"))
    assert running(world) == ["ada-0", "ada-head", "bob-head"]


def test_a_due_head_takes_room_beside_what_is_kept_for_an_owner_that_is_a_due_head_too() -> None:
    world = world_of(BACKFILL, gpus=8)
    owned = replace(quota("ada", None), guaranteed_milli=16_000)
    world.tell(set_policy(backfill_wait_ms=10, fair_half_life_ms=0), set_quotas(owned, quota("bob", None)))
    world.tell(joined("n2", 8), joined("n3", 8))
    submit(world, *((f"bob-{number}", 6) for number in range(3)), *((f"bob-small-{number}", 2) for number in range(3)))
    submit(world, ("bob-due", 4))
    world.tell(admitted(spec_of("ada-own", 8, 2, tenant="ada", queue="q")))
    assert list(world.state.heads) == ["bob-due", "ada-own"]
    world.pass_time(20)
    world.tell(*(finished(f"bob-{number}", f"n{number + 1}") for number in range(3)))
    assert world.state.tree.kept.nodes == {"n1", "n2"}
    assert world.nodes_of("bob-due") == ["n3"]
