"""While few jobs wait, placement needs no window: it walks them all, in the order in which the queues are served."""

from __future__ import annotations

import pytest

from shared.cluster.config import CellFile, CellPart, Pool, Queue, Tenant
from shared.cluster.job import JobStatus
from shared.events.operations import HoldJob, ReleaseJob
from shared.events.queue import QueueDiscipline
from shared.events.values import RetryPolicy
from tests.placement.queues import QueuedWorld
from tests.placement.world import (
    CELL,
    Fate,
    World,
    admitted,
    cancel,
    failed,
    finished,
    joined,
    kinds,
    spec_of,
    update,
)

FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=100),),
            queues=(Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO), Queue(name="default")),
        ),
    ),
    tenants=(Tenant(name="ada"),),
)


def cell(*nodes: int, few: int = 10) -> World:
    """A cell with nodes of so many GPUs, in which few jobs wait."""
    world = World(FILE, few=few)
    world.tell(*(joined(f"n{number}", gpus) for number, gpus in enumerate(nodes, 1)))
    return world


def started(world: World) -> list[str]:
    return [job.id for job in world.state.jobs.values() if job.status is JobStatus.STARTING]


def test_a_job_starts_in_the_record_that_accepts_it() -> None:
    world = cell(8)
    assert kinds(world.tell(admitted(spec_of("job")))) == ["JobEnqueued", "JobStarted"]


def test_of_jobs_that_come_together_the_queue_the_priority_and_the_time_say_who_is_first() -> None:
    world = cell(2)
    world.tell(
        admitted(spec_of("late", queue="default"), 2),
        admitted(spec_of("early", queue="default"), 1),
        admitted(spec_of("high", queue="default", priority=1), 3),
        admitted(spec_of("strict", queue="strict"), 4),
    )
    assert started(world) == ["high", "strict"]
    world.tell(finished("strict"))
    assert started(world) == ["early", "high"]


def test_the_head_of_a_strict_queue_that_does_not_fit_stops_those_behind_it_and_no_other_queue() -> None:
    world = cell(2)
    world.tell(
        admitted(spec_of("big", 9, queue="strict")),
        admitted(spec_of("behind", queue="strict"), 1),
        admitted(spec_of("other", queue="default"), 1),
    )
    assert started(world) == ["other"]


def test_a_job_of_a_higher_priority_that_becomes_the_head_of_a_strict_queue_starts() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("big", 9, queue="strict")), admitted(spec_of("small", queue="strict"), 1))
    assert kinds(world.tell(update("small", priority=5))) == ["JobUpdated", "JobStarted"]


def test_a_held_job_starts_when_it_is_released() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("job", hold=True)))
    assert started(world) == []
    assert kinds(world.tell(ReleaseJob(cell=CELL, job="job"))) == ["JobReleased", "JobStarted"]


def test_a_job_that_pauses_is_due_by_itself_when_its_pause_is_over() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("job", retry=RetryPolicy(budget=1, backoff_ms=700))))
    world.tell(failed("job"))
    assert world.service.next_cell_ms() == 700
    assert kinds(world.pass_time(699)) == []
    assert kinds(world.pass_time(1)) == ["JobStarted"]
    assert world.service.next_cell_ms() is None


def test_what_waits_starts_when_there_is_room() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("a", 2)), admitted(spec_of("b", 2), 1), admitted(spec_of("c", 2), 2))
    world.tell(cancel("b"))
    assert kinds(world.tell(finished("a"))) == ["JobFinished", "JobStarted"]
    assert started(world) == ["c"]


def test_a_new_process_knows_the_jobs_that_wait() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("a", 2)), admitted(spec_of("b", 2), 1))
    world.restart()
    world.tell(finished("a"))
    assert started(world) == ["b"]


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.BEATEN])
def test_a_record_that_is_not_in_force_changes_nothing_of_who_waits(fate: Fate) -> None:
    fates = iter([fate])
    world = cell(2)
    world.tell(admitted(spec_of("a", 2)), admitted(spec_of("b", 2), 1))
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(finished("a"), admitted(spec_of("c", 2), 2))
    assert started(world) == ["b"]


def test_with_many_jobs_placement_waits_to_be_shown_who_is_next_until_few_are_left() -> None:
    world = cell(1, few=2)
    world.tell(*(admitted(spec_of(f"job-{number}"), number) for number in range(6)))
    assert started(world) == []
    world.tell(*(HoldJob(cell=CELL, job=f"job-{number}") for number in (4, 5)))
    assert started(world) == []
    world.tell(*(cancel(f"job-{number}") for number in (0, 3, 4)))
    assert started(world) == []
    assert kinds(world.tell(cancel("job-5"))) == ["JobCancelled", "JobStarted", "JobDeferred"]
    assert started(world) == ["job-1"]


def test_a_walk_of_a_window_that_leaves_few_goes_on_without_one() -> None:
    world = cell(8, few=2)
    world.tell(*(admitted(spec_of(f"job-{number}"), number) for number in range(6)))
    window = world.queue()
    head = window.heads[0]
    shown = type(head)(queue="default", discipline=head.discipline, jobs=head.jobs[:4], cuts=(3,))
    world.tell(type(window)(cell=CELL, writer="queueing-1", window=1, jobs_offset=6, version=1, heads=(shown,)))
    assert len(started(world)) == 6


def test_queueing_shows_nobody_while_few_wait() -> None:
    world = QueuedWorld(FILE, few=3)
    world.settle(joined("n1", 1), *(admitted(spec_of(f"job-{number}"), number) for number in range(3)))
    assert "queue-0" not in world.inputs
    world.settle(*(admitted(spec_of(f"more-{number}"), 9) for number in range(9)))
    assert len(world.inputs["queue-0"]) > 0
    for number in range(3):
        world.settle(finished(f"job-{number}"))
    assert started(world) == ["more-0"]
