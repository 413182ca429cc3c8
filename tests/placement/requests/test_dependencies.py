"""Jobs that wait for a time of their own, or for the ends of other jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.requests.dependencies import SETTLED_MAX
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import AfterWhen, Dependency, JobSpec
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.reasons import CancelReason, PendingReason, RefuseCode
from tests.placement.worlds.world import (
    CELL,
    FILE,
    World,
    admitted,
    cancel,
    cell_with,
    codes,
    failed,
    finished,
    joined,
    kinds,
    set_policy,
    spec_of,
    started,
)


def small_cell() -> World:
    """One node of 8 GPUs."""
    world = World(FILE)
    world.tell(joined("n1"))
    return world


def after(*jobs: str, when: AfterWhen = AfterWhen.OK) -> tuple[Dependency, ...]:
    return tuple(Dependency(job=job, when=when) for job in jobs)


def spec(name: str, *waits: str, when: AfterWhen = AfterWhen.OK, **fields: Any) -> JobSpec:
    return spec_of(name, 1, after=after(*waits, when=when), **fields)


def submit(world: World, *specs: JobSpec) -> list[e.AnyEffect]:
    return world.tell(*(admitted(each) for each in specs))


def end(world: World, job: str, *, well: bool = True) -> list[e.AnyEffect]:
    """The job's only attempt ends."""
    world.tell(started(job))
    return world.tell(finished(job) if well else failed(job))


def reasons(effects: list[e.AnyEffect]) -> dict[str, tuple[CancelReason, str | None]]:
    return {x.job: (x.reason, x.because_of) for x in effects if isinstance(x, e.JobCancelled)}


def test_a_job_does_not_start_before_its_own_time_and_does_at_it() -> None:
    world = small_cell()
    effects = submit(world, spec_of("late", 1, not_before_ms=500))
    assert kinds(effects) == ["JobEnqueued", "JobDeferred"]
    assert world.job("late").deferred is PendingReason.NOT_BEFORE
    assert world.service.next_cell_ms() == 500
    assert world.pass_time(499) == []
    assert kinds(world.pass_time(1)) == ["JobStarted"]


def test_a_time_that_has_passed_changes_nothing() -> None:
    world = small_cell()
    world.pass_time(100)
    assert kinds(submit(world, spec_of("job", 1, not_before_ms=100))) == ["JobEnqueued", "JobStarted"]


def test_a_job_waits_until_another_has_ended_well() -> None:
    world = small_cell()
    assert kinds(submit(world, spec("a"), spec("b", "a"))) == ["JobEnqueued"] * 2 + ["JobDeferred", "JobStarted"]
    assert (world.job("b").status, world.job("b").deferred) == (JobStatus.AWAITING, PendingReason.AFTER)
    assert kinds(end(world, "a")) == ["JobFinished", "JobReady", "JobStarted"]


def test_it_waits_for_all_that_it_names() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b"), spec("c", "a", "b"))
    assert kinds(end(world, "b")) == ["JobFinished", "WaitShortened"]
    assert world.job("c").waits_for == ("a",)
    assert kinds(end(world, "a")) == ["JobFinished", "JobReady", "JobStarted"]


def test_what_ended_before_does_not_keep_a_job() -> None:
    world = small_cell()
    submit(world, spec("a"))
    end(world, "a")
    assert kinds(submit(world, spec("b", "a"))) == ["JobEnqueued", "JobStarted"]


@pytest.mark.parametrize("when", AfterWhen)
def test_the_word_any_lets_a_job_start_whatever_the_end(when: AfterWhen) -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a", when=when))
    end(world, "a", well=False)
    assert ("b" in world.state.jobs) is (when is AfterWhen.ANY)


def test_a_failure_ends_all_that_wait_for_a_good_end_and_those_behind_them() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a"), spec("c", "b"), spec("d", "c", when=AfterWhen.ANY))
    effects = end(world, "a", well=False)
    assert reasons(effects) == {
        "b": (CancelReason.DEPENDENCY_FAILED, "a"),
        "c": (CancelReason.DEPENDENCY_FAILED, "b"),
    }
    assert world.state.finished["c"].status is JobStatus.CANCELLED
    assert world.job("d").status is JobStatus.STARTING


def test_a_cancel_is_no_good_end() -> None:
    world = small_cell()
    submit(world, spec("a", hold=True), spec("b", "a"))
    assert reasons(world.tell(cancel("a"))) == {
        "a": (CancelReason.ASKED, None),
        "b": (CancelReason.DEPENDENCY_FAILED, "a"),
    }


def test_a_job_that_names_one_which_has_failed_is_accepted_and_ended_at_once() -> None:
    world = small_cell()
    submit(world, spec("a"))
    end(world, "a", well=False)
    assert kinds(submit(world, spec("b", "a"))) == ["JobEnqueued", "JobDeferred", "JobCancelled"]


def test_a_job_that_names_one_which_was_cancelled_is_ended_at_once_too() -> None:
    world = small_cell()
    submit(world, spec("a", hold=True))
    world.tell(cancel("a"))
    assert reasons(submit(world, spec("b", "a"))) == {"b": (CancelReason.DEPENDENCY_FAILED, "a")}
    assert kinds(submit(world, spec("c", "a", when=AfterWhen.ANY))) == ["JobEnqueued", "JobStarted"]


def test_of_two_jobs_sent_together_either_may_come_first() -> None:
    world = small_cell()
    world.tell(set_policy(unknown_dependency_ms=5_000))
    submit(world, spec("b", "a"))
    assert world.pass_time(4_000) == []
    assert kinds(submit(world, spec("a"))) == ["JobEnqueued", "JobStarted"]
    assert world.pass_time(10_000) == []
    assert kinds(end(world, "a")) == ["JobFinished", "JobReady", "JobStarted"]


def test_a_job_does_not_wait_for_ever_for_one_that_never_comes() -> None:
    world = small_cell()
    world.tell(set_policy(unknown_dependency_ms=5_000))
    submit(world, spec("b", "a"))
    assert world.pass_time(4_999) == []
    assert reasons(world.pass_time(1)) == {"b": (CancelReason.DEPENDENCY_UNKNOWN, "a")}


def test_the_next_writer_knows_that_it_waits_for_one_that_has_not_come() -> None:
    world = small_cell()
    world.tell(set_policy(unknown_dependency_ms=5_000))
    submit(world, spec("b", "a"))
    world.pass_time(4_000)
    world.restart()
    assert reasons(world.pass_time(5_000)) == {"b": (CancelReason.DEPENDENCY_UNKNOWN, "a")}


def test_jobs_cannot_wait_for_each_other() -> None:
    world = small_cell()
    submit(world, spec("a", "c"), spec("b", "a"))
    assert codes(submit(world, spec("c", "b"))) == [RefuseCode.AFTER_ITSELF]


@pytest.mark.parametrize("when", AfterWhen)
@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FINISHED])
def test_nobody_waits_for_the_jobs_of_another_tenant(status: JobStatus, when: AfterWhen) -> None:
    world = small_cell() if status is not JobStatus.QUEUED else World(FILE)
    submit(world, spec("a", tenant="bob"))
    if status is not JobStatus.QUEUED:
        world.tell(started("a"))
        assert world.job("a").status is JobStatus.RUNNING
    if status is JobStatus.FINISHED:
        world.tell(finished("a"))
    (no,) = submit(world, spec("b", "a", when=when))
    assert isinstance(no, e.JobRefused)
    told = no.job, no.request, no.tenant, no.code, no.text
    assert told == ("b", "submit", "ada", RefuseCode.NOT_THE_TENANTS_JOB, "it would wait for a")
    assert "b" not in world.state.jobs
    assert "b" not in world.state.finished


def test_nor_for_one_that_turns_out_to_be_another_tenants() -> None:
    world = small_cell()
    submit(world, spec("b", "a"), spec("c", "a", tenant="bob"))
    effects = submit(world, spec("a", tenant="bob"))
    assert reasons(effects) == {"b": (CancelReason.DEPENDENCY_UNKNOWN, "a")}
    assert world.job("c").status is JobStatus.AWAITING


def test_a_held_job_goes_on_waiting_for_others_when_it_is_released() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a"))
    assert kinds(world.tell(HoldJob(cell=CELL, job="b"))) == ["JobHeld"]
    assert kinds(world.tell(ReleaseJob(cell=CELL, job="b"))) == ["JobReleased"]
    assert world.job("b").status is JobStatus.AWAITING


def test_a_held_job_stays_held_when_what_it_waits_for_is_over() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a", hold=True))
    assert kinds(end(world, "a")) == ["JobFinished", "WaitShortened"]
    assert kinds(world.tell(ReleaseJob(cell=CELL, job="b"))) == ["JobReleased", "JobStarted"]


def test_a_held_job_ends_too_when_what_it_waits_for_fails() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a", hold=True))
    assert reasons(end(world, "a", well=False)) == {"b": (CancelReason.DEPENDENCY_FAILED, "a")}


def test_a_job_waits_for_its_time_behind_the_ends_of_others() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a", not_before_ms=9_000))
    assert kinds(end(world, "a")) == ["JobFinished", "JobReady", "JobDeferred"]
    assert world.job("b").deferred is PendingReason.NOT_BEFORE
    assert kinds(world.pass_time(9_000)) == ["JobStarted"]


def test_a_waiting_job_may_be_cancelled_and_nobody_looks_for_it_any_more() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a"))
    world.tell(cancel("b"))
    assert (world.state.dependents, world.state.dependencies_resolved) == ({}, {})
    assert kinds(end(world, "a")) == ["JobFinished"]


def test_a_strict_queue_goes_on_past_jobs_that_wait_for_others() -> None:
    world = cell_with(joined("n1"))
    made = submit(world, spec("a", hold=True), spec("b", "a", queue="strict"), spec("c", queue="strict"))
    assert [effect.job for effect in made if isinstance(effect, e.JobStarted)] == ["c"]


def test_a_reader_is_told_whom_a_job_waits_for_and_until_when() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a", not_before_ms=9_000))
    found = why_not(world.state, world.job("b"), (), world.state.at_ms)
    assert (found.codes, found.waits_for, found.not_before_ms) == (
        (PendingReason.NOT_BEFORE, PendingReason.AFTER),
        ("a",),
        9_000,
    )


def test_when_all_are_over_nothing_is_left_of_the_wait() -> None:
    world = small_cell()
    submit(world, spec("a"), spec("b", "a"))
    end(world, "a")
    end(world, "b")
    assert (world.state.dependents, world.state.dependencies_resolved, world.state.waiting) == ({}, {}, 0)


def test_a_neighbours_element_is_no_more_to_wait_for_than_its_job() -> None:
    world = small_cell()
    submit(world, spec("b", "a.1"), spec("c", "a.1", tenant="bob"))
    effects = submit(world, spec("a", tenant="bob", array=2))
    assert reasons(effects) == {"b": (CancelReason.DEPENDENCY_UNKNOWN, "a.1")}
    assert world.job("c").status is JobStatus.AWAITING


@pytest.mark.parametrize("followers", [1, 2, 12])
def test_however_many_jobs_of_others_wait_for_an_id_its_owner_may_submit_it(followers: int) -> None:
    world = World(FILE)
    world.checks = False
    arrays = [spec(f"{k:064}", "a", tenant="bob", array=1_000) for k in range(followers)]
    submit(world, *arrays)
    effects = submit(world, spec("a"))
    assert world.unwritable == []
    assert world.job("a").status is JobStatus.QUEUED
    assert len(reasons(effects)) == followers * 1_000
    assert set(reasons(effects).values()) == {(CancelReason.DEPENDENCY_UNKNOWN, "a")}
    assert list(world.state.jobs) == ["a"]
    world.check()


def test_the_next_writer_ends_the_jobs_of_others_that_the_first_one_did_not_get_to() -> None:
    world = World(FILE)
    world.checks = False
    submit(world, *(spec(f"{k:064}", "a", tenant="bob", array=1_000) for k in range(6)))
    world.hand_over(admitted(spec("a")))
    world.decide()
    assert "a" in world.state.jobs
    assert len(world.state.jobs) > 1
    world.restart()
    assert list(world.state.jobs) == ["a"]


def test_of_very_many_whose_wait_ends_at_once_one_record_lets_some_go_on_and_the_next_ones_the_others() -> None:
    world = small_cell()
    world.checks = False
    submit(world, spec("root"))
    for at in range(0, 2_500, 500):
        submit(world, *(spec(f"job-{number:04}", "root") for number in range(at, at + 500)))
    made = len(world.decisions)
    end(world, "root")
    ready = [how_many_ready(decision.effects) for decision in world.decisions[made:]]
    assert (sum(ready), max(ready)) == (2_500, SETTLED_MAX // 2)
    assert all(job.status is not JobStatus.AWAITING for job in world.state.jobs.values())


def how_many_ready(effects: Iterable[e.AnyEffect]) -> int:
    return sum(isinstance(effect, e.JobReady) for effect in effects)
