"""Who stands where in which line, and when a new window is due."""

from __future__ import annotations

import pytest

from services.queueing.policy.parts import in_parts
from services.queueing.service import QueueingService
from shared.events import effects as e
from shared.events.operations import CellPolicy
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import DeferCode, RefuseCode
from shared.events.value import replace
from shared.events.values import JobKind, Level, Resources, TopologyWish
from tests.queueing.cell import DIGEST, PART, Cell, spec


def test_higher_priority_comes_first_then_the_earlier_submit_then_who_came_first() -> None:
    cell = Cell()
    cell.enqueue(spec("d"), spec("c"), submit_ms=5)
    cell.enqueue(spec("b"), submit_ms=9)
    cell.enqueue(spec("a", priority=-1), submit_ms=1)
    cell.enqueue(spec("z", priority=7), submit_ms=99)
    assert cell.order() == ["z", "d", "c", "b", "a"]


def test_queues_stand_in_the_order_of_the_cell_file() -> None:
    cell = Cell()
    cell.enqueue(spec("n", queue="night"), spec("s", queue="strict"), spec("d"), spec("x", queue="gone"))
    assert [(head.queue, head.jobs) for head in cell.heads()] == [
        ("default", ("d",)),
        ("strict", ("s",)),
        ("night", ("n",)),
        ("gone", ("x",)),
    ]
    assert [head.discipline for head in cell.heads()][1] is QueueDiscipline.STRICT_FIFO


def test_a_window_shows_the_first_few_of_each_class_and_where_it_was_cut() -> None:
    cell = Cell(most=2)
    cell.enqueue(*(spec(f"a{number}") for number in range(4)), *(spec(f"b{number}", workers=2) for number in range(2)))
    (head,) = cell.heads()
    assert head.jobs == ("a0", "a1", "b0", "b1")
    assert (head.cuts, head.waiting) == ((1,), 6)


def test_a_strict_queue_shows_a_plain_prefix_of_its_line() -> None:
    cell = Cell(most=3)
    cell.enqueue(*(spec(f"j{number}", queue="strict", workers=1 + number) for number in range(5)))
    (head,) = cell.heads()
    assert (head.jobs, head.cuts) == (("j0", "j1", "j2"), (2,))


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "bob"},
        {"kind": JobKind.INFERENCE},
        {"priority": 1},
        {"pools": ("train",)},
        {"gpu_type": "h100"},
        {"workers": 2},
        {"resources": Resources(gpu_milli=2_000)},
        {"resources": Resources(cpu_milli=1)},
        {"resources": Resources(memory_mib=1)},
        {"topology": TopologyWish(level=Level.LEAF)},
        {"spread": Level.LEAF},
        {"preemptible": False},
    ],
)
def test_jobs_that_may_fit_otherwise_are_of_another_class(other: dict[str, object]) -> None:
    cell = Cell(most=1)
    cell.enqueue(spec("a"), spec("b", **other))
    assert len(cell.order()) == 2


@pytest.mark.parametrize("same", [{"max_run_ms": 5}, {"min_run_ms": 1}])
def test_what_no_fit_depends_on_makes_no_class(same: dict[str, object]) -> None:
    cell = Cell(most=1)
    cell.enqueue(spec("a"), replace(spec("b"), **same))
    assert cell.order() == ["a"]


def test_a_change_behind_the_cut_needs_no_new_window() -> None:
    cell = Cell(most=2)
    cell.enqueue(*(spec(f"a{number}") for number in range(3)))
    cell.heads()
    cell.enqueue(spec("a9"))
    assert not cell.is_due()
    cell.decide(e.JobCancelled(job="a9"))
    assert not cell.is_due()


def test_a_cut_that_appears_or_vanishes_needs_a_new_window() -> None:
    cell = Cell(most=2)
    cell.enqueue(spec("a1"), spec("a2"))
    assert cell.heads()[0].cuts == ()
    cell.enqueue(spec("a3"))
    assert cell.is_due()
    assert cell.heads()[0].cuts == (1,)
    cell.decide(e.JobCancelled(job="a3"))
    assert cell.is_due()
    assert cell.heads()[0].cuts == ()


def test_a_job_within_the_head_needs_a_new_window() -> None:
    cell = Cell(most=2)
    cell.enqueue(spec("a1"), spec("a2"), spec("a3"), submit_ms=5)
    cell.heads()
    cell.enqueue(spec("a0"), submit_ms=1)
    assert cell.is_due()
    assert cell.order() == ["a0", "a1"]


def test_a_start_needs_a_new_window_only_if_another_job_comes_into_the_head() -> None:
    cell = Cell(most=2)
    cell.enqueue(spec("a1"), spec("a2"), spec("a3"))
    cell.heads()
    cell.start("a1")
    assert cell.is_due()
    assert cell.order() == ["a2", "a3"]
    cell.start("a2")
    assert not cell.is_due()


def test_a_reason_to_wait_needs_no_new_window() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.heads()
    cell.decide(e.JobDeferred(job="a", code=DeferCode.NO_FREE_GPUS))
    assert not cell.is_due()


def test_a_new_writer_gets_a_window() -> None:
    cell = Cell()
    cell.heads()
    cell.decide(e.WriterStarted(epoch=1, writer="placement-2"))
    assert cell.is_due()


def test_while_jobs_wait_the_window_is_sent_again_every_second() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.service.window(5_000)
    assert [cell.service.due_in_ms(at) for at in (5_000, 5_400, 6_000, 9_000)] == [1_000, 600, 0, 0]


def test_without_waiting_jobs_nothing_is_sent_again() -> None:
    cell = Cell()
    assert cell.is_due()
    (window,) = cell.service.window(0)
    assert window.heads == ()
    assert cell.service.due_in_ms(99_999) is None


def test_a_stepped_cell_sends_nothing_again() -> None:
    cell = Cell(stepped=True)
    cell.enqueue(spec("a"))
    cell.service.window(0)
    assert cell.service.due_in_ms(99_999) is None


def test_windows_are_numbered_and_name_what_they_were_made_from() -> None:
    cell = Cell()
    cell.admit(spec("a"), spec("b"))
    cell.enqueue(spec("a"))
    windows = [cell.service.window(0)[0] for _ in range(2)]
    assert [window.window for window in windows] == [1, 2]
    assert (windows[0].jobs_offset, windows[0].version, windows[0].writer) == (2, 1, "queueing-1")


def test_an_admitted_job_stands_in_line_before_the_log_knows_it() -> None:
    cell = Cell()
    cell.admit(spec("a"))
    assert cell.is_due()
    assert cell.order() == ["a"]


def test_a_job_that_is_held_from_the_start_does_not_stand_in_line() -> None:
    cell = Cell()
    cell.admit(spec("a", hold=True))
    assert cell.order() == []


def test_an_admitted_job_that_placement_passes_over_disappears() -> None:
    cell = Cell()
    cell.admit(spec("a"), spec("b"))
    cell.read = 1
    cell.decide(e.JobRefused(job="other", request="submit", code=RefuseCode.TOO_MANY_WAITING))
    assert cell.order() == ["b"]


def test_a_refused_submit_takes_the_early_job_out() -> None:
    cell = Cell()
    cell.admit(spec("a"))
    cell.decide(e.JobRefused(job="a", request="submit", code=RefuseCode.TOO_MANY_WAITING))
    assert cell.order() == []
    assert cell.is_due() is False


def test_a_second_submit_of_an_id_does_not_move_the_first() -> None:
    cell = Cell()
    cell.admit(spec("a"), spec("b"))
    cell.admit(spec("a", priority=9))
    cell.enqueue(spec("a"), spec("b"))
    assert cell.order() == ["a", "b"]


def test_the_log_decides_which_of_two_submits_counts() -> None:
    cell = Cell()
    cell.admit(spec("a"), submit_ms=1)
    cell.admit(spec("b"), submit_ms=2)
    cell.admit(spec("a"), submit_ms=3)
    refused = e.JobRefused(job="a", request="submit", code=RefuseCode.TOO_MANY_WAITING)
    entered = [e.JobEnqueued(spec=spec(job), submit_ms=at, digest=DIGEST) for job, at in (("b", 2), ("a", 3))]
    cell.decide(refused, *entered)
    assert cell.order() == ["b", "a"]


def test_an_id_that_was_used_before_is_not_shown_again() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.decide(e.JobCancelled(job="a"))
    cell.admit(spec("a"))
    assert cell.order() == []


def test_records_of_jobs_that_the_log_has_passed_are_not_taken_in_again() -> None:
    cell = Cell()
    cell.read = 5
    cell.decide()
    cell.read = 3
    cell.admit(spec("a"))
    assert cell.order() == []
    assert cell.service.jobs_offset == 4


def test_a_job_that_runs_is_in_no_line_and_comes_back_in_its_old_place() -> None:
    cell = Cell()
    cell.enqueue(spec("a"), spec("b"))
    cell.start("a")
    assert cell.order() == ["b"]
    cell.requeue("a", not_before_ms=0)
    assert cell.order() == ["a", "b"]


def test_a_job_that_pauses_sleeps_until_its_time() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.start("a")
    cell.requeue("a", not_before_ms=500)
    assert (cell.order(), cell.service.next_cell_ms()) == ([], 500)
    cell.service.wake(499)
    assert cell.order() == []
    cell.service.wake(500)
    assert cell.is_due()
    assert (cell.order(), cell.service.next_cell_ms()) == (["a"], None)


def test_a_sleeper_that_is_cancelled_does_not_wake() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.start("a")
    cell.requeue("a", not_before_ms=500)
    cell.decide(e.JobCancelled(job="a"))
    cell.service.wake(900)
    assert cell.order() == []


def test_a_hold_takes_a_job_out_and_a_release_puts_it_back() -> None:
    cell = Cell()
    cell.enqueue(spec("a"), spec("b"))
    cell.decide(e.JobHeld(job="a"))
    assert cell.order() == ["b"]
    cell.decide(e.JobReleased(job="a"))
    assert cell.order() == ["a", "b"]


def test_a_new_priority_moves_a_job() -> None:
    cell = Cell()
    cell.enqueue(spec("a"), spec("b"))
    cell.decide(e.JobUpdated(spec=spec("b", priority=1)))
    assert cell.order() == ["b", "a"]


def test_an_update_of_a_running_job_puts_it_in_no_line() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.start("a")
    cell.decide(e.JobUpdated(spec=spec("a", priority=1)))
    assert cell.order() == []


def test_a_process_that_starts_anew_has_the_same_lines() -> None:
    cell = Cell()
    cell.enqueue(spec("c"), spec("a"), spec("b", priority=1), spec("s", queue="strict"), spec("t"))
    cell.start("t")
    cell.requeue("t", not_before_ms=500)
    cell.decide(e.JobHeld(job="c"))
    again = Cell()
    again.service = QueueingService(cell.state, PART, writer="queueing-2", jobs_source="jobs-0", few=-1)
    assert again.heads() == cell.heads()
    assert again.service.next_cell_ms() == 500
    assert again.service.waiting_by_queue() == cell.service.waiting_by_queue()


def test_a_large_window_goes_in_parts_that_each_fit_a_record() -> None:
    long = [f"{number:05}" + "x" * 120 for number in range(10_000)]
    cuts = (0, 3_999, 4_000, 9_999)
    heads = [
        QueueHead(queue="small", discipline=QueueDiscipline.STRICT_FIFO, jobs=("a",)),
        QueueHead(queue="large", discipline=QueueDiscipline.BEST_EFFORT_FIFO, jobs=tuple(long), cuts=cuts),
        QueueHead(queue="last", discipline=QueueDiscipline.STRICT_FIFO, jobs=("z",)),
    ]
    parts = in_parts(heads)
    pieces = [piece for part in parts for piece in part]
    assert [job for piece in pieces for job in piece.jobs] == ["a", *long, "z"]
    assert [piece.jobs[cut] for piece in pieces for cut in piece.cuts] == [long[cut] for cut in cuts]
    assert [sum(len(piece.jobs) for piece in part) for part in parts] == [1, 4_000, 4_000, 2_001]


def test_no_heads_make_one_empty_part() -> None:
    assert in_parts([]) == [()]


def test_the_policy_of_the_cell_changes_no_line() -> None:
    cell = Cell()
    cell.enqueue(spec("a"))
    cell.heads()
    cell.decide(e.PolicySet(policy=CellPolicy(start_wall_ms=5)))
    assert not cell.is_due()


@pytest.mark.parametrize(("classes", "each", "shown"), [(10, 80, 64), (100, 60, 40), (2_100, 4, 2)])
def test_a_window_on_many_classes_shows_fewer_of_each(classes: int, each: int, shown: int) -> None:
    cell = Cell(64)
    for number in range(classes):
        cell.enqueue(*(spec(f"j{number:04}-{at:02}", tenant=f"t{number}", priority=number) for at in range(each)))
    for _ in range(20):
        heads = cell.heads()
    assert sum(len(head.jobs) for head in heads) == classes * shown
    assert sum(len(head.cuts) for head in heads) == classes


def test_while_few_jobs_wait_none_enters_its_line_before_the_log_has_it() -> None:
    cell = Cell(few=2)
    cell.admit(spec("first"))
    assert (cell.service.early, cell.service.waiting) == (0, 0)
    cell.enqueue(spec("a"), spec("b"), spec("c"))
    cell.admit(spec("later"))
    assert (cell.service.early, cell.service.waiting) == (1, 4)
