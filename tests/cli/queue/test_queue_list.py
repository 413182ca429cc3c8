"""What `fallow queue list` tells: the jobs in the order of their turns, and what keeps each."""

from __future__ import annotations

import pytest

from fallow.cli.queue.queue import COLUMNS, _counts, _row, as_object
from fallow.services.placement.explain.queue_listing import QueueListing, listings_of
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Dependency, Resources
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason, PreemptionCause, StopReason
from tests.cluster.worlds.examples import cell, enqueued, node, place, started

WHOLE = Resources(gpu_milli=8_000)
DEFAULT = Queue(name="default")


def job(name: str, **spec: object) -> e.JobEnqueued:
    return enqueued(name, resources=WHOLE, **{"queue": "default", **spec})


def one(state: CellState, *queues: Queue, limit: int = 20) -> QueueListing:
    return listings_of(state, queues or (DEFAULT,), state.at_ms, limit)[0]


def planned(name: str, on: str, start_ms: int) -> e.ReservationSet:
    return e.ReservationSet(job=name, workers=(place(0, on, *range(8)),), start_ms=start_ms)


def test_jobs_stand_in_the_order_of_their_turns_with_the_highest_priority_first() -> None:
    state = cell(node("n1"), job("a"), job("b", priority=5), job("c"))
    assert [each.job for each in one(state).jobs] == ["b", "a", "c"]
    assert [each.place for each in one(state).jobs] == [0, 1, 2]


def test_by_fair_shares_the_tenant_with_less_in_use_has_the_first_turn() -> None:
    held = (job("r", tenant="ada"), started("r", place(0, "n1", *range(8))))
    state = cell(node("n1"), *held, job("a", tenant="ada"), job("z", tenant="zoe"))
    queue = Queue(name="default", order=QueueOrder.FAIR_SHARE)
    assert [each.job for each in one(state, queue).jobs] == ["z", "a"]


def test_held_and_awaiting_jobs_are_counted_beside_the_line() -> None:
    after = job("d", after=(Dependency(job="a"),))
    state = cell(node("n1"), job("a"), job("b"), e.JobHeld(job="b"), after)
    found = one(state)
    assert (found.waiting, found.held, found.awaiting) == (1, 1, 1)
    assert list(_counts(found)) == [
        "fifo, best-effort-fifo; 1 job waiting for 8 GPUs",
        "1 held",
        "1 waiting for other jobs to end",
    ]


def test_a_planned_start_names_the_nodes_that_are_kept_and_the_jobs_that_run_there() -> None:
    runs = (job("r"), started("r", place(0, "n1", *range(8))))
    state = cell(node("n1"), *runs, job("a"), planned("a", "n1", 90_000))
    (waiting,) = one(state).jobs
    assert (waiting.planned_start_ms, waiting.kept_nodes, waiting.held_by) == (90_000, ("n1",), ("r",))
    assert _row(waiting)[-2:] == ("day 0 00:01:30", "n1, held by r")


def test_a_job_to_which_others_yield_stands_first_and_names_its_room_and_the_jobs_that_leave_it() -> None:
    room = e.RoomHeld(
        job="b", cause=PreemptionCause.PRIORITY, workers=(place(0, "n1", *range(8)),), victims=1, until_ms=9_000,
        proposal="p",
    )  # fmt: skip
    runs = (job("r"), started("r", place(0, "n1", *range(8))))
    leaves = e.JobStopping(job="r", attempt=1, why=StopReason.PRIORITY, grace_wall_ms=1_000)
    found = one(cell(node("n1"), *runs, job("a"), job("b", priority=5), leaves, room))
    assert [(each.job, each.place, each.kept_nodes, each.held_by) for each in found.jobs] == [
        ("b", None, ("n1",), ("r",)),
        ("a", 0, (), ()),
    ]
    assert found.waiting == 2
    assert _row(found.jobs[0])[1] == ""


def test_the_reason_is_the_one_that_placement_found_last() -> None:
    state = cell(node("n1"), job("a"), e.JobDeferred(job="a", code=PendingReason.NO_FREE_GPUS), job("b"))
    assert [_row(each)[COLUMNS.index("WHY")] for each in one(state).jobs] == ["no_free_gpus", "not looked at yet"]


def test_a_long_queue_is_cut_and_counted_in_full() -> None:
    state = cell(node("n1"), *(job(f"j{number}") for number in range(5)))
    found = one(state, limit=2)
    assert ([each.job for each in found.jobs], found.waiting, found.gpus_milli) == (["j0", "j1"], 5, 40_000)


def test_a_queue_that_left_the_cell_file_is_told_behind_the_others() -> None:
    state = cell(node("n1"), job("a", queue="old"))
    new, old = listings_of(state, (Queue(name="new", discipline=QueueDiscipline.BACKFILL),), 0, 20)
    assert ((new.queue, new.waiting), (old.queue, old.waiting, old.is_in_file)) == (("new", 0), ("old", 1, False))
    assert next(_counts(old)).startswith("not in the cell file any more; 1 job")


@pytest.mark.parametrize("queues", [(DEFAULT,), (Queue(name="other"), DEFAULT)])
def test_a_job_that_names_no_queue_stands_in_the_first(queues: tuple[Queue, ...]) -> None:
    found = listings_of(cell(node("n1"), job("a", queue="")), queues, 0, 20)
    assert [each.waiting for each in found] == [1, *[0] * (len(queues) - 1)]


def test_programs_get_the_same_with_places_from_one() -> None:
    found = as_object(state := cell(node("n1"), job("ada/a")), [one(state)])
    (shown,) = found["queues"][0]["jobs"]
    assert {key: shown[key] for key in ("place", "id", "tenant", "job", "why")} == {
        "place": 1, "id": "a", "tenant": "ada", "job": "ada/a", "why": None,
    }  # fmt: skip
