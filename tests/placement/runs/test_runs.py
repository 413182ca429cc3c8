"""Runs: a gang comes up, ends, fails, is tried again; news may come twice, late or for another attempt."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import RetryPolicy, RunStatus
from fallow.shared.events.nodes import RunProgressed
from fallow.shared.events.reasons import FailReason, RequeueReason, StopReason
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    failed,
    finished,
    is_ready,
    joined,
    kinds,
    report,
    seen,
    spec_of,
    started,
    stopped,
)

TRIES = RetryPolicy(budget=2, backoff_ms=1_000, backoff_max_ms=1_500)


def starting(**spec: object) -> World:
    """A gang on n1 and n2 that has been told to start."""
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(admitted(spec_of("gang", 8, workers=2, **spec)))
    return world


def running(**spec: object) -> World:
    world = starting(**spec)
    world.tell(started("gang", "n1"), started("gang", "n2"))
    return world


def only(effects: list[e.AnyEffect], kind: type[e.Effect]) -> e.AnyEffect:
    (effect,) = [effect for effect in effects if isinstance(effect, kind)]
    return effect


def test_a_gang_runs_when_each_of_its_nodes_says_so() -> None:
    world = starting()
    assert kinds(world.tell(started("gang", "n1"))) == ["RunObserved"]
    assert kinds(world.tell(started("gang", "n2"))) == ["JobRunning"]
    assert set(world.job("gang").runs.values()) == {RunStatus.RUNNING}


def test_a_gang_whose_nodes_all_speak_at_once_makes_one_effect() -> None:
    assert kinds(starting().tell(started("gang", "n2"), started("gang", "n1"))) == ["JobRunning"]


def test_a_full_report_counts_like_the_single_news() -> None:
    world = starting()
    assert kinds(world.tell(report("n1", seen("gang")), report("n2", seen("gang")))) == ["JobRunning"]


def test_news_that_comes_twice_changes_nothing_the_second_time() -> None:
    world = running()
    assert world.tell(started("gang", "n1"), started("gang", "n1"), report("n2", seen("gang"))) == []


@pytest.mark.parametrize(
    "news",
    [
        finished("gang", "n1", attempt=2),
        finished("gang", "n3"),
        finished("gang", "n1", boot="boot-0"),
        finished("other", "n1"),
        RunProgressed(cell=CELL, node="n1", boot="boot-1", seq=1, job="gang", attempt=1, progress_milli=500),
    ],
)
def test_news_of_another_attempt_node_boot_or_job_is_ignored(news: object) -> None:
    assert running().tell(news) == []  # type: ignore[arg-type]


def test_a_job_has_finished_when_all_of_its_runs_have() -> None:
    world = running()
    assert kinds(world.tell(finished("gang", "n1"))) == ["RunObserved"]
    assert kinds(world.tell(finished("gang", "n2"))) == ["JobFinished"]


def test_a_run_may_finish_before_the_others_have_started() -> None:
    world = starting()
    assert kinds(world.tell(started("gang", "n1"), finished("gang", "n1"))) == ["RunObserved"]
    assert kinds(world.tell(started("gang", "n2"))) == ["JobRunning"]
    assert kinds(world.tell(finished("gang", "n2"))) == ["JobFinished"]


def test_a_job_may_start_and_finish_within_one_batch() -> None:
    world = starting()
    news = (started("gang", "n1"), finished("gang", "n1"), started("gang", "n2"), finished("gang", "n2"))
    assert kinds(world.tell(*news)) == ["JobFinished"]


def test_a_gang_that_loses_a_worker_stops_whole_and_waits_again() -> None:
    world = running(retry=TRIES)
    stopping = only(world.tell(failed("gang", "n1")), e.JobStopping)
    assert isinstance(stopping, e.JobStopping)
    assert stopping.why is StopReason.WORKER_FAILED
    requeued = only(world.tell(stopped("gang", "n2")), e.JobRequeued)
    reason = RequeueReason.WORKER_FAILED
    assert requeued == e.JobRequeued(job="gang", reason=reason, not_before_ms=1_000, failures=1, avoid=("n1",))


@pytest.mark.parametrize(
    ("news", "why"),
    [
        (stopped("gang", "n1"), StopReason.NODE_LOST),
        (report("n1", seen("gang", status=RunStatus.STOPPED)), StopReason.NODE_LOST),
        (failed("gang", "n1", infrastructure=True), StopReason.DEVICE_FAILED),
        (failed("gang", "n1"), StopReason.WORKER_FAILED),
    ],
)
def test_a_gang_of_which_a_node_stopped_its_part_by_itself_is_told_of_no_failed_device(
    news: Event, why: StopReason
) -> None:
    """As nodes do whose lease has run out, also where the log never takes them for lost."""
    world = running()
    stopping = only(world.tell(news), e.JobStopping)
    assert isinstance(stopping, e.JobStopping)
    assert stopping.why is why
    assert is_ready(world, "n1")


def test_a_single_worker_that_fails_with_no_budget_fails_its_job() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    made = world.tell(failed("job", "n1", exit_code=3, text="out of memory"))
    assert made == [
        e.JobFailed(job="job", reason=FailReason.RETRIES_EXHAUSTED, text="out of memory"),
        e.NodeFailures(node="n1", jobs=("job",), tenants=("ada",), failed_ms=(0,)),
    ]
    assert world.state.finished["job"].status is JobStatus.FAILED


def test_the_pause_doubles_up_to_its_maximum_and_the_budget_ends_it() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("job", retry=TRIES)))
    first = only(world.tell(failed("job")), e.JobRequeued)
    assert isinstance(first, e.JobRequeued)
    assert first.not_before_ms == 1_000
    assert world.rest() == []
    world.pass_time(1_000)
    second = only(world.tell(failed("job", attempt=2)), e.JobRequeued)
    assert isinstance(second, e.JobRequeued)
    assert (second.not_before_ms, second.failures) == (2_500, 2)
    world.pass_time(1_500)
    assert kinds(world.tell(failed("job", attempt=3))) == ["JobFailed"]


def test_a_fault_of_the_node_does_not_count_against_the_job() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    made = world.tell(failed("job", infrastructure=True))
    reason = RequeueReason.INFRASTRUCTURE
    assert made[0] == e.JobRequeued(job="job", reason=reason, not_before_ms=0, failures=0, losses=1, avoid=("n1",))


def test_a_run_that_stops_without_being_told_does_not_count_against_the_job() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    assert kinds(world.tell(stopped("job")))[0] == "JobRequeued"


def test_the_next_attempt_has_the_next_number_and_the_old_ones_news_is_void() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.tell(stopped("job"))
    assert world.job("job").attempt == 2
    assert world.tell(finished("job", attempt=1)) == []
    assert kinds(world.tell(started("job", attempt=2), finished("job", attempt=2))) == ["JobFinished"]


def test_a_gang_that_stops_for_a_failure_and_has_failed_workers_on_all_nodes_counts_once() -> None:
    world = running(retry=TRIES)
    world.tell(failed("gang", "n1"), failed("gang", "n2"))
    assert world.job("gang").failures == 1
