"""Who starts when: jobs stand in their lines from the record that accepts them on."""

from __future__ import annotations

import pytest

from fallow.services.placement.queue.lines.reasons import FRESH_MAX, OF_A_CLASS_MAX
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RetryPolicy
from fallow.shared.events.operations import ReleaseJob
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    CELL,
    DIGEST,
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


def cell(*nodes: int) -> World:
    """A cell with nodes of so many GPUs, in which few jobs wait."""
    world = World(FILE)
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


def test_jobs_of_one_time_start_in_the_order_in_which_they_came_whatever_they_are_called() -> None:
    world = cell(1)
    world.tell(admitted(spec_of("m")), admitted(spec_of("z")), admitted(spec_of("a")))
    world.tell(admitted(spec_of("0")))
    assert ends_in_order(world) == ["m", "z", "a", "0"]


def test_a_job_that_comes_back_keeps_its_place_among_those_of_its_time() -> None:
    world = cell(1)
    again = RetryPolicy(budget=3, backoff_ms=1)
    world.tell(*(admitted(spec_of(job, retry=again)) for job in ("z", "y", "x")))
    world.tell(failed("z"))
    assert started(world) == ["y"]
    world.now_ms += 1_000  # longer than its pause
    world.tell(finished("y"))
    assert ends_in_order(world) == ["z", "x"]


def test_elements_of_an_array_start_in_the_order_of_their_numbers() -> None:
    world = cell(1)
    world.tell(admitted(spec_of("many", array=12)), admitted(spec_of("after")))
    assert ends_in_order(world) == [*(f"many.{index}" for index in range(12)), "after"]


def test_a_state_that_is_read_back_still_knows_who_came_first() -> None:
    world = cell(1)
    world.tell(*(admitted(spec_of(job)) for job in ("running", "z", "y")))
    read = state_from(rows_of(world.state))
    assert read.entered == 3
    assert sorted(read.jobs.values(), key=lambda job: job.number) == list(world.state.jobs.values())


def ends_in_order(world: World) -> list[str]:
    """The jobs of a cell of one GPU, as they start one after the other."""
    found: list[str] = []
    while (running := started(world)) and len(found) < 20:
        found += running
        world.tell(*(finished(job, attempt=world.job(job).attempt) for job in running))
        world.now_ms += 10
        world.tell()
    return found


def test_the_head_of_a_strict_queue_that_does_not_fit_stops_those_behind_it_and_the_queues_behind_its_own() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("first", queue="strict")))
    world.tell(
        admitted(spec_of("big", 2, queue="strict")),
        admitted(spec_of("behind", queue="strict"), 1),
        admitted(spec_of("other", queue="default"), 1),
    )
    assert started(world) == ["first"]
    world.tell(cancel("big"))
    assert started(world) == ["first", "behind"]


def test_a_job_of_a_higher_priority_that_becomes_the_head_of_a_strict_queue_starts() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("first", queue="strict")))
    world.tell(admitted(spec_of("big", 2, queue="strict")), admitted(spec_of("small", queue="strict"), 1))
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


def test_of_a_class_that_does_not_fit_the_first_ones_are_told_why() -> None:
    world = cell()
    world.tell(
        *(admitted(spec_of(f"job-{number:03}", queue="default"), number) for number in range(OF_A_CLASS_MAX + 30))
    )
    told = [job.id for job in world.state.jobs.values() if job.deferred is PendingReason.NO_SUCH_NODES]
    assert told == [f"job-{number:03}" for number in range(OF_A_CLASS_MAX)]


def test_a_job_behind_more_new_ones_than_one_walk_looks_at_is_told_why_it_waits() -> None:
    world = cell()
    world.tell(admitted(spec_of("first", queue="default")))
    many = [admitted(spec_of(f"job-{number:04}", queue="default")) for number in range(FRESH_MAX)]
    world.tell(*many, admitted(spec_of("of-another-class", queue="default", priority=-1)))
    assert world.job("of-another-class").deferred is PendingReason.NO_SUCH_NODES


def test_a_reason_to_wait_is_told_once_and_again_when_it_changes() -> None:
    world = cell(2)
    world.tell(admitted(spec_of("a", 2)))
    assert kinds(world.tell(admitted(spec_of("b", 2), 1))) == ["JobEnqueued", "JobDeferred"]
    assert kinds(world.tell(admitted(spec_of("c", 9), 2))) == ["JobEnqueued", "JobDeferred"]
    world.tell(joined("n2", 1), joined("n3", 1))
    assert world.job("b").deferred is PendingReason.FRAGMENTED


@pytest.mark.parametrize("order", QueueOrder)
def test_a_long_backlog_of_many_classes_starts_as_room_comes(order: QueueOrder) -> None:
    part = part_in(order)
    world = World(CellFile(cells=(part,), tenants=tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))))
    specs = [
        spec_of(f"job-{number:03}", tenant=("ada", "bob", "eve")[number % 3], priority=number % 5)
        for number in range(300)
    ]
    world.tell(*(admitted(spec, number) for number, spec in enumerate(specs)))
    for number in range(38):
        world.tell(joined(f"n{number}"))
    assert len(started(world)) == 300


def part_in(order: QueueOrder) -> CellPart:
    return CellPart(
        name=CELL, ordinal=0, pools=(Pool(name="train", gpus=1_000),), queues=(Queue(name="default", order=order),)
    )


def test_jobs_of_one_class_start_together_only_up_to_the_next_job_of_another_class() -> None:
    world = cell(4)
    world.tell(
        *(
            admitted(spec_of(job, gpus, queue="default"), submit_ms)
            for job, gpus, submit_ms in (("a-1", 1, 1), ("last", 2, 5), ("second", 3, 2), ("a-2", 1, 3), ("a-3", 1, 4))
        )
    )
    assert started(world) == ["a-1", "second"]


def test_a_job_starts_in_its_order_between_jobs_for_which_places_were_found_together() -> None:
    """Places are found for those of two classes together, without a look at who stands between them; then one of the
    classes is empty, and those of the other start together.
    """
    world = cell(8)
    firm = ("b0", "b1")
    in_order = ("a0", "b0", "a1", "a2", "b1", "a3", "wide", "a4", "a5")
    jobs = [spec_of(job, 2 if job == "wide" else 1, queue="default", preemptible=job not in firm) for job in in_order]
    world.tell(*(admitted(job, number) for number, job in enumerate(jobs)))
    assert started(world) == ["a0", "b0", "a1", "a2", "b1", "a3", "wide"]


def test_a_job_whose_queue_is_no_name_waits_and_runs_and_keeps_no_other_from_it() -> None:
    world = World()
    world.tell(joined("n1", 1))
    spec = spec_of("a", queue="Not a name")
    world.written_by_another(e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST))
    world.service.caught_up(world.wall_ms)
    world.tell(admitted(spec_of("b")))
    assert sorted(job.status for job in world.state.jobs.values()) == [JobStatus.QUEUED, JobStatus.STARTING]
    world.restart()
    assert len(world.state.jobs) == 2
