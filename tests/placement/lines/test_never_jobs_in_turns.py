"""By shares, a job that may never start takes no turn of its tenant: not in what is told, and not in a plan."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.explain.queue_position import turns_of
from fallow.services.queueing.policy.estimator import estimator_of
from fallow.services.queueing.policy.plan import plan_of
from fallow.services.queueing.policy.planner import plan_starts
from fallow.shared.cluster.model.config import Queue
from fallow.shared.events.operations import Quota
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.placement.heads.test_heads import submit, world_of
from tests.placement.worlds.world import World, finished, joined, quota, set_quotas

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
OVER_LIMIT, NO_NODES = 4, 9
"""So many workers of eight GPUs are more than Ada may ever use, and more than there are nodes."""


def before_ada(discipline: QueueDiscipline, never: int | None, minutes: int = 1) -> World:
    """Four full nodes: Bob has three of them, Eve one, Ada none. A job of Ada's waits, then one of Bob's; before Ada's
    stands, if one is given, a job of hers of so many workers that may never start.
    """
    queue = Queue(name="line", discipline=discipline, order=QueueOrder.FAIR_SHARE)
    world = world_of(queue, wait_ms=10 * MINUTE_MS)
    world.tell(*(joined(f"n{number}", 8) for number in range(4)))
    submit(world, "bob-runs", 8, 3, tenant="bob", estimate_run_ms=2 * HOUR_MS)
    submit(world, "eve-runs", 8, tenant="eve", estimate_run_ms=HOUR_MS)
    if never == OVER_LIMIT:  # else no quota is set: nothing but the nodes keeps it off
        world.tell(set_quotas(quota("ada", 16)))
    if never is not None:
        submit(world, "never", 8, never, tenant="ada", priority=1)
    submit(world, "ada-next", 8, tenant="ada", estimate_run_ms=HOUR_MS)
    submit(world, "bob-next", 8, tenant="bob", estimate_run_ms=HOUR_MS)
    world.pass_time(minutes * MINUTE_MS)
    return world


def queues_of(world: World) -> tuple[Queue, ...]:
    return world.file.cells[0].queues


@pytest.mark.parametrize("never", [None, OVER_LIMIT, NO_NODES])
@pytest.mark.parametrize("discipline", list(QueueDiscipline))
def test_the_next_job_of_its_tenant_has_the_turn_that_it_would_have_without_it(
    discipline: QueueDiscipline, never: int | None
) -> None:
    world = before_ada(discipline, never)
    waiting = [job for job in world.state.jobs.values() if not job.workers]
    turns = [job.id for job in turns_of(world.state, queues_of(world)[0], waiting, world.now_ms)]
    assert [job for job in turns if job != "never"] == ["ada-next", "bob-next"]
    (plan,) = plan_of(world.state, queues_of(world), world.now_ms)
    assert [job for job in plan.next if job != "never"] == ["ada-next", "bob-next"]


@pytest.mark.parametrize("never", [None, OVER_LIMIT, NO_NODES])
@pytest.mark.parametrize("discipline", [QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL])
def test_who_is_told_to_be_ahead_is_who_starts_first(discipline: QueueDiscipline, never: int | None) -> None:
    world = before_ada(discipline, never, minutes=12)  # in a queue with backfill it is due by then
    ada, bob = (
        why_not(world.state, world.job(job), queues_of(world), world.now_ms) for job in ("ada-next", "bob-next")
    )
    assert ("bob-next" in ada.ahead.first, "ada-next" in bob.ahead.first) == (False, True)
    assert ada.behind is None
    assert bob.behind is not None
    assert bob.behind.job == "ada-next"
    world.tell(finished("eve-runs", world.nodes_of("eve-runs")[0]))
    assert (world.nodes_of("ada-next"), world.nodes_of("bob-next")) == (["n3"], [])


@pytest.mark.parametrize("never", [None, OVER_LIMIT, NO_NODES])
def test_a_plan_gives_the_first_place_to_whom_it_belongs(never: int | None) -> None:
    world = before_ada(QueueDiscipline.BACKFILL, never)
    planned = plan_starts(world.state, queues_of(world), world.now_ms, 8, estimator_of(world.state))
    assert [(each.job, each.start_ms // HOUR_MS) for each in planned] == [("ada-next", 1), ("bob-next", 2)]


Jobs = tuple[tuple[str, dict[str, Any]], ...]
"""Names, and what is special about each."""


def turns_in_a_full_cell(limit: Quota, *jobs: tuple[str, dict[str, Any]]) -> list[str]:
    """The turns of these jobs, which come one after the other, by shares: of the tenant that their name begins with."""
    world = world_of(Queue(name="line", order=QueueOrder.FAIR_SHARE))
    world.tell(*(joined(f"n{number}", 8) for number in range(4)))
    submit(world, "eve-runs", 8, 4, tenant="eve")
    world.tell(set_quotas(limit))
    for name, spec in jobs:
        submit(world, name, 8, tenant=name.partition("-")[0], **spec)
    waiting = [job for job in world.state.jobs.values() if not job.workers]
    return [job.id for job in turns_of(world.state, queues_of(world)[0], waiting, world.now_ms)]


def test_what_keeps_one_tenant_off_for_good_takes_no_turn_from_a_job_like_it_of_another() -> None:
    like: dict[str, Any] = {"workers": 4}
    jobs: Jobs = ("ada-never", like), ("bob-first", like), ("bob-second", like), ("ada-next", {})
    assert turns_in_a_full_cell(quota("ada", 16), *jobs) == ["ada-never", "bob-first", "ada-next", "bob-second"]


def test_what_keeps_a_firm_job_off_for_good_takes_no_turn_from_one_like_it_that_may_be_preempted() -> None:
    like: dict[str, Any] = {"workers": 4}
    jobs: Jobs = (
        ("ada-never", like | {"preemptible": False}),
        ("ada-first", like | {"preemptible": True}),
        ("ada-second", {}),
        ("bob-next", {}),
    )
    guarantee = Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=8_000)
    assert turns_in_a_full_cell(guarantee, *jobs) == ["ada-never", "ada-first", "bob-next", "ada-second"]
