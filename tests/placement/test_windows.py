"""Windows come in parts, out of order and twice; the newest whole one counts."""

from __future__ import annotations

from services.placement.policy.windows import Windows
from shared.events.operations import HoldJob
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import DeferCode
from tests.placement.world import CELL, admitted, cancel, cell_with, finished, joined, kinds, spec_of, window

BEST, STRICT = QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.STRICT_FIFO


def head(
    *jobs: str, queue: str = "default", discipline: QueueDiscipline = BEST, cuts: tuple[int, ...] = ()
) -> QueueHead:
    return QueueHead(queue=queue, discipline=discipline, jobs=jobs, cuts=cuts)


def test_a_window_in_parts_counts_when_it_is_whole() -> None:
    windows = Windows()
    assert not windows.take(window(1, head("b"), part=1, parts=2))
    assert not windows.heads
    assert windows.take(window(1, head("a"), part=0, parts=2))
    assert [each.jobs for each in windows.heads] == [("a",), ("b",)]


def test_a_newer_window_drops_the_parts_of_the_older() -> None:
    windows = Windows()
    windows.take(window(1, head("a"), part=0, parts=2))
    assert windows.take(window(2, head("b")))
    assert not windows.take(window(1, head("c"), part=1, parts=2))
    assert [each.jobs for each in windows.heads] == [("b",)]


def test_a_repeated_or_older_window_is_ignored() -> None:
    windows = Windows()
    assert windows.take(window(2, head("a")))
    assert not windows.take(window(2, head("b")))
    assert not windows.take(window(1, head("b")))


def test_a_new_queueing_process_counts_its_windows_anew() -> None:
    windows = Windows()
    windows.take(window(9, head("a")))
    assert windows.take(window(1, head("b"), writer="queueing-2"))


def test_a_part_that_comes_twice_counts_once() -> None:
    windows = Windows()
    windows.take(window(1, head("a"), part=0, parts=2))
    assert not windows.take(window(1, head("a"), part=0, parts=2))


def test_a_part_with_a_number_that_cannot_be_makes_no_window_whole() -> None:
    windows = Windows()
    assert not windows.take(window(1, head("a"), part=7, parts=1))
    assert windows.take(window(1, head("b"), part=0, parts=1))
    assert [each.jobs for each in windows.heads] == [("b",)]


def test_a_strict_queue_lets_nobody_past_its_head() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("big", 9)), admitted(spec_of("small")))
    world.tell(window(1, head("big", "small", discipline=STRICT)))
    assert world.job("big").deferred is DeferCode.NO_SUCH_NODES
    assert world.job("small").deferred is DeferCode.BEHIND_HEAD
    assert world.job("small").workers == ()


def test_when_the_head_of_a_strict_queue_is_held_the_next_one_starts() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("big", 9)), admitted(spec_of("small")))
    world.tell(window(1, head("big", "small", discipline=STRICT)))
    assert kinds(world.tell(HoldJob(cell=CELL, job="big"))) == ["JobHeld", "JobStarted"]


def test_a_best_effort_queue_lets_small_jobs_past() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("big", 9)), admitted(spec_of("small")))
    world.tell(window(1, head("big", "small")))
    assert world.nodes_of("small") == ["n1"]


def test_a_blocked_strict_queue_does_not_hold_up_the_next_queue() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("big", 9)), admitted(spec_of("small")))
    world.tell(window(1, head("big", discipline=STRICT), head("small", queue="other")))
    assert world.nodes_of("small") == ["n1"]


def test_jobs_that_are_unknown_over_or_held_are_passed_over() -> None:
    world = cell_with(joined("n1"))
    world.tell(*(admitted(spec_of(job, hold=job == "held")) for job in ("gone", "held", "here")))
    world.tell(cancel("gone"))
    world.tell(window(1, head("unknown", "gone", "held", "here")))
    assert world.nodes_of("here") == ["n1"]


def test_a_job_that_the_window_knew_before_the_log_starts_when_it_is_admitted() -> None:
    world = cell_with(joined("n1"))
    assert world.tell(window(1, head("early"))) == []
    assert kinds(world.tell(admitted(spec_of("early")))) == ["JobEnqueued", "JobStarted"]


def test_a_walk_ends_behind_a_cut_that_started() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("a")), admitted(spec_of("hidden")), admitted(spec_of("other", 2)))
    world.tell(window(1, head("a", "other", cuts=(0,))))
    assert world.job("other").workers == ()
    world.tell(window(2, head("hidden", "other")))
    assert [world.job(job).workers[0].devices for job in ("hidden", "other")] == [(1,), (2, 3)]


def test_a_walk_goes_on_behind_a_cut_that_is_blocked() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("big", 9)), admitted(spec_of("other")))
    world.tell(window(1, head("big", "other", cuts=(0,))))
    assert world.nodes_of("other") == ["n1"]


def test_a_cut_holds_although_its_job_has_started_since() -> None:
    world = cell_with(joined("n1", 2), joined("n2", 2))
    world.run(spec_of("runs", 2))
    world.tell(*(admitted(spec_of(job, 2)) for job in ("a", "hidden", "last")))
    world.tell(window(9, head("a", "last", cuts=(0,))))
    assert world.nodes_of("a") == ["n2"]
    assert "JobStarted" not in kinds(world.tell(finished("runs")))
    world.tell(window(10, head("hidden", "last")))
    assert world.nodes_of("hidden") == ["n1"]


def test_a_reason_to_wait_is_told_once_and_again_when_it_changes() -> None:
    world = cell_with(joined("n1", 2))
    world.run(spec_of("a", 2))
    world.tell(admitted(spec_of("b", 2)))
    assert kinds(world.start_all()) == ["JobDeferred"]
    assert world.start_all() == []
    world.tell(joined("n2", 1), joined("n3", 1))
    assert world.job("b").deferred is DeferCode.FRAGMENTED


def test_what_did_not_fit_is_tried_again_once_something_is_free() -> None:
    world = cell_with(joined("n1", 2))
    world.run(spec_of("a", 2))
    world.tell(admitted(spec_of("b", 2)))
    world.start_all()
    assert kinds(world.tell(finished("a"))) == ["JobFinished", "JobStarted"]
