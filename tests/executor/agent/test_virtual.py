"""Runs that only take time."""

from __future__ import annotations

import pytest

from fallow.services.executor.policy.turn import Start, Stop
from fallow.services.executor.policy.virtual import VirtualDriver, end_of
from fallow.shared.events.fields.values import ProcessRun, Run, RunStatus, VirtualRun


@pytest.mark.parametrize(
    ("run", "attempt", "end"),
    [
        (VirtualRun(duration_ms=50), 1, (1_050, RunStatus.FINISHED)),
        (VirtualRun(), 1, None),
        (VirtualRun(duration_ms=50, fail_at_ms=20), 1, (1_020, RunStatus.FAILED)),
        (VirtualRun(duration_ms=50, fail_at_ms=20), 9, (1_020, RunStatus.FAILED)),
        (VirtualRun(duration_ms=50, fail_at_ms=20, fail_attempts=2), 2, (1_020, RunStatus.FAILED)),
        (VirtualRun(duration_ms=50, fail_at_ms=20, fail_attempts=2), 3, (1_050, RunStatus.FINISHED)),
        (VirtualRun(duration_ms=50, fail_at_ms=80), 1, (1_050, RunStatus.FINISHED)),
        (VirtualRun(duration_ms=50, fail_at_ms=50), 1, (1_050, RunStatus.FAILED)),
        (VirtualRun(fail_at_ms=80, fail_attempts=1), 2, None),
    ],
)
def test_an_attempt_ends_when_and_as_its_run_says(
    run: VirtualRun, attempt: int, end: tuple[int, RunStatus] | None
) -> None:
    assert end_of(run, attempt, 1_000) == end


def start(job: str, run: Run, started_ms: int = 0) -> Start:
    return Start("node-1", job, 1, (), run, started_ms)


def test_runs_end_in_the_order_of_their_times_then_their_names() -> None:
    driver = VirtualDriver()
    for job, duration_ms in (("late", 30), ("b", 20), ("a", 20)):
        driver.start(start(job, VirtualRun(duration_ms=duration_ms)))
    assert driver.next_due_ms() == 20
    assert [(seen.job, seen.status) for seen in driver.ended(29)] == [("a", "finished"), ("b", "finished")]
    assert driver.next_due_ms() == 30


def test_a_stopped_run_does_not_end_again() -> None:
    driver = VirtualDriver()
    driver.start(start("a", VirtualRun(duration_ms=10)))
    assert driver.stop(Stop("node-1", "a", 1, 0)).status is RunStatus.STOPPED
    assert (driver.next_due_ms(), driver.ended(100)) == (None, [])


def test_a_run_that_is_started_twice_ends_once() -> None:
    driver = VirtualDriver()
    driver.start(start("a", VirtualRun(duration_ms=10)))
    driver.start(start("a", VirtualRun(duration_ms=10)))
    assert len(driver.ended(100)) == 1


def test_the_runs_of_nodes_that_are_somebody_elses_end_there() -> None:
    driver = VirtualDriver()
    driver.start(start("a", VirtualRun(duration_ms=10)))
    driver.forget({"node-1"})
    assert driver.ended(100) == []


def test_a_run_of_real_processes_fails_with_the_reason() -> None:
    seen = VirtualDriver().start(start("a", ProcessRun(argv=("true",))))
    assert (seen.status, seen.text) == (RunStatus.FAILED, "this node runs virtual runs only, not process")


def test_what_was_planned_for_a_run_does_not_end_a_later_one_of_the_same_names() -> None:
    driver = VirtualDriver()
    driver.start(start("a", VirtualRun(duration_ms=10)))
    driver.stop(Stop("node-1", "a", 1, 0))
    driver.start(start("a", VirtualRun(duration_ms=10), started_ms=5))
    assert (driver.ended(10), driver.next_due_ms()) == ([], 15)
    assert [seen.status for seen in driver.ended(15)] == ["finished"]


def test_each_turn_of_a_worker_counts_as_an_attempt_of_its_own() -> None:
    run = VirtualRun(duration_ms=100, fail_at_ms=10, fail_attempts=1)
    driver = VirtualDriver()
    for turn in (0, 1):
        driver.start(Start(job="j", attempt=1, node="n1", places=(), run=run, started_ms=0, rank=0, turn=turn))
    assert [(seen.turn, seen.status) for seen in driver.ended(100)] == [(0, RunStatus.FAILED), (1, RunStatus.FINISHED)]
