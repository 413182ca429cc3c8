"""A tenant with any number of kinds of jobs: each decision tries few of them, all come to their turn, and the jobs of
other tenants start as if they were not there.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.queue.heads import head_before
from fallow.services.placement.queue.lines.blocked import AGAIN_MAX
from fallow.services.placement.queue.scheduling_cycle import TRIES_MAX
from fallow.services.placement.service import TRIES_AT_REST_MAX
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, set_policy, spec_of

KINDS = 6 * AGAIN_MAX
BOUND = TRIES_AT_REST_MAX + TRIES_MAX
"""A further walk in one decision begins only below the first of the two, and ends at the second."""


def cell_of(
    *gpus: int,
    discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO,
    order: QueueOrder = QueueOrder.FIFO,
) -> World:
    world = World(
        CellFile(
            cells=(
                CellPart(
                    name=CELL,
                    ordinal=0,
                    pools=(Pool(name="train", gpus=10_000),),
                    queues=(Queue(name="default", discipline=discipline, order=order),),
                ),
            ),
            tenants=(Tenant(name="crowd"), Tenant(name="bob")),
        )
    )
    world.checks = False
    world.tell(*(joined(f"n{number}", each) for number, each in enumerate(gpus, 1)))
    return world


def crowd(number: int, gpus: int = 1, **more: Any) -> JobSpec:
    """One job of its own kind."""
    wishes = {"tolerations": (f"taint-{number}",), "tenant": "crowd", "queue": "default", **more}
    return spec_of(f"crowd-{number:05}", gpus, **wishes)


def bob(job: str, gpus: int = 1) -> JobSpec:
    return spec_of(job, gpus, tenant="bob", queue="default")


def tries(world: World) -> list[int]:
    """Decide until nothing is left to decide, and count how many kinds each decision tried in vain."""
    found = []
    while True:
        goes_on = world.decide()
        found.append(world.service.tried_in_vain)
        due_ms = world.service.next_cell_ms()
        if not goes_on and (due_ms is None or due_ms > world.now_ms):
            return found


def submit_crowd(world: World, gpus: int = 1, **more: Any) -> list[int]:
    found = []
    for at in range(0, KINDS, 100):
        specs = [crowd(number, gpus, **more) for number in range(at, at + 100)]
        world.hand_over(*(admitted(spec, number) for number, spec in enumerate(specs, at)))
        found += tries(world)
    return found


def running(world: World, tenant: str) -> list[str]:
    jobs = world.state.jobs.values()
    return [job.id for job in jobs if job.status is JobStatus.STARTING and job.spec.tenant == tenant]


@pytest.mark.parametrize("discipline", QueueDiscipline)
def test_no_decision_tries_more_kinds_than_it_may(discipline: QueueDiscipline) -> None:
    world = cell_of(8, discipline=discipline)
    world.tell(admitted(bob("first", 8)))
    assert max(submit_crowd(world)) <= BOUND
    world.hand_over(finished("first"))
    assert max(tries(world)) <= BOUND
    assert len(running(world, "crowd")) == 8
    world.restart()  # which walks all lines anew
    assert world.service.tried_in_vain <= BOUND
    assert max(tries(world)) <= BOUND


def test_what_wants_more_of_a_node_than_any_has_free_is_not_tried_at_all() -> None:
    world = cell_of(8)
    world.tell(admitted(bob("long", 7)), admitted(bob("short")))
    submit_crowd(world, 8)
    world.hand_over(finished("short"), admitted(bob("next")))
    assert sum(tries(world)) == 0
    assert running(world, "bob") == ["long", "next"]


def test_another_tenants_job_is_tried_in_the_first_decision_however_many_stand_before_it() -> None:
    world = cell_of(8)
    world.tell(admitted(bob("long", 4)), admitted(bob("short", 4)))
    submit_crowd(world, 4, node_labels=("zone=none",))
    world.tell(admitted(bob("other", 5)), admitted(bob("next", 4)))
    world.hand_over(finished("short"))
    world.decide()
    assert running(world, "bob") == ["long", "next"]


def test_the_first_of_a_tenants_kinds_start_first_each_time_that_something_becomes_free() -> None:
    world = cell_of(1)
    world.tell(admitted(bob("first")))
    submit_crowd(world)
    order, job, attempt = [], "first", 1
    for _ in range(5):
        world.hand_over(finished(job, attempt=attempt))
        tries(world)
        (job,) = running(world, "crowd")
        order.append(job)
    assert order == [f"crowd-{number:05}" for number in range(5)]


def test_the_last_of_all_kinds_comes_to_its_turn() -> None:
    world = cell_of(1)
    world.tell(admitted(bob("first")))
    submit_crowd(world)
    world.hand_over(joined("n2", 1, taints=(f"taint-{KINDS - 1}",)))
    assert max(tries(world)) <= BOUND
    assert running(world, "crowd") == [f"crowd-{KINDS - 1:05}"]


def test_no_kind_waits_while_there_is_room_for_it() -> None:
    world = cell_of(1)
    world.tell(admitted(bob("first")))
    submit_crowd(world)
    world.hand_over(*(joined(f"more-{number:02}", 8) for number in range(KINDS // 8)))
    tries(world)
    assert len(running(world, "crowd")) == KINDS


def test_all_jobs_are_told_why_they_wait_though_few_are_told_at_a_time() -> None:
    world = cell_of(1)
    world.tell(admitted(bob("first")))
    submit_crowd(world)
    assert all(job.deferred for job in world.state.jobs.values() if job.spec.tenant == "crowd")


class Looked(dict[str, int]):
    """Since when heads wait, and how many of these times were looked up."""

    looks = 0

    def __getitem__(self, key: str) -> int:
        self.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("number", [20, 200])
def test_to_tell_why_a_job_waits_behind_many_heads_of_one_kind_each_is_looked_at_once(number: int) -> None:
    """Each newer job of a higher priority is a head before those that were there."""
    world = cell_of(8, discipline=QueueDiscipline.BACKFILL)
    world.tell(set_policy(backfill_wait_ms=1_000), admitted(spec_of("busy", 8, tenant="bob")))
    world.tell(*(admitted(spec_of(f"h{each}", 8, tenant="bob", priority=1)) for each in range(number)))
    world.tell(admitted(spec_of("last", 1, tenant="bob", priority=-1)))
    state, before = world.state, [world.job(f"h{each}") for each in range(number)]
    state.heads = Looked({job.spec.id: 0 for job in before})
    for job in before:
        job.deferred = PendingReason.NO_FREE_GPUS
    queue, now_ms = world.file.cells[0].queues[0], world.now_ms + 5_000
    head = head_before(state, world.job("last"), before, queue, (), now_ms, has_room=True)
    assert head is not None
    assert state.heads.looks <= 2 * number
