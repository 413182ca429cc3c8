"""One submission that becomes many jobs: accepted whole, started as far as may be, held and cancelled whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.explain.explain import why_not
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Dependency, JobSpec, RetryPolicy
from fallow.shared.events.jobs import JobUpdateRequested
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.reasons import CancelReason, PendingReason, RefuseCode
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    FILE,
    World,
    admitted,
    cancel,
    codes,
    failed,
    finished,
    joined,
    kinds,
    set_policy,
    spec_of,
    started,
    update,
)


def cell() -> World:
    """One node of 8 GPUs."""
    world = World(FILE)
    world.tell(joined("n1"))
    return world


def array(count: int, name: str = "many", **fields: Any) -> JobSpec:
    return spec_of(name, 1, array=count, **fields)


def starts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.job for effect in effects if isinstance(effect, e.JobStarted)]


def end(world: World, *jobs: str, well: bool = True) -> list[e.AnyEffect]:
    """The only attempts of these jobs end."""
    world.tell(*(started(job) for job in jobs))
    return world.tell(*((finished if well else failed)(job) for job in jobs))


def test_an_array_becomes_as_many_jobs_each_with_its_index() -> None:
    world = cell()
    assert starts(world.tell(admitted(array(3)))) == ["many.0", "many.1", "many.2"]
    spec = world.job("many.2").spec
    assert (spec.array_of, spec.array_index, spec.array) == ("many", 2, 3)


def test_no_more_of_its_elements_run_than_may() -> None:
    world = cell()
    effects = world.tell(admitted(array(4, array_max_running=2)))
    assert starts(effects) == ["many.0", "many.1"]
    assert world.job("many.2").deferred is PendingReason.ARRAY_LIMIT
    assert starts(end(world, "many.0")) == ["many.2"]
    assert starts(end(world, "many.1", "many.2")) == ["many.3"]


def test_another_job_passes_elements_that_wait_for_their_array() -> None:
    world = cell()
    world.tell(admitted(array(4, array_max_running=1, queue="strict")))
    assert starts(world.tell(admitted(spec_of("next", 1, queue="strict")))) == ["next"]


def test_an_element_that_is_tried_again_counts_while_it_runs_and_not_while_it_pauses() -> None:
    world = cell()
    retry = RetryPolicy(budget=1, backoff_ms=1_000)
    world.tell(admitted(array(3, array_max_running=1, retry=retry)))
    assert starts(end(world, "many.0", well=False)) == ["many.1"]
    assert world.job("many.0").status is JobStatus.QUEUED


def test_the_same_array_again_changes_nothing_while_it_lives_and_when_it_is_over() -> None:
    world = cell()
    world.tell(admitted(array(2)))
    assert world.tell(admitted(array(2))) == []
    end(world, "many.0", "many.1")
    assert world.tell(admitted(array(2))) == []


def test_another_array_under_its_id_is_refused() -> None:
    world = cell()
    world.tell(admitted(array(2)))
    assert codes(world.tell(admitted(array(3), digest="f" * 32))) == [RefuseCode.ID_USED_BEFORE]


def test_an_array_is_refused_whole_where_one_of_its_ids_is_taken() -> None:
    world = cell()
    world.tell(admitted(spec_of("many.1", 1)))
    effects = world.tell(admitted(array(2)))
    assert (kinds(effects), codes(effects)) == (["JobRefused"], [RefuseCode.ID_USED_BEFORE])
    assert "many.0" not in world.state.jobs


def test_an_array_that_would_be_too_many_is_refused_whole() -> None:
    world = cell()
    world.tell(set_policy(max_pending_jobs=3))
    assert codes(world.tell(admitted(array(4)))) == [RefuseCode.TOO_MANY_WAITING]
    assert world.state.jobs == {}


def test_a_hold_a_release_and_a_cancel_reach_all_elements() -> None:
    world = cell()
    world.tell(admitted(array(3, hold=True)))
    assert kinds(world.tell(ReleaseJob(cell=CELL, job="many"))) == ["JobReleased"] * 3 + ["JobStarted"] * 3
    assert codes(world.tell(HoldJob(cell=CELL, job="many"))) == [RefuseCode.WRONG_STATE]
    assert kinds(world.tell(cancel("many"))) == ["JobStopping"] * 3


def test_a_hold_of_what_is_over_of_an_array_is_refused_as_over() -> None:
    world = cell()
    world.tell(admitted(array(2)))
    end(world, "many.0")
    assert codes(world.tell(HoldJob(cell=CELL, job="many.0"))) == [RefuseCode.ALREADY_OVER]
    end(world, "many.1")
    assert codes(world.tell(HoldJob(cell=CELL, job="many"))) == [RefuseCode.ALREADY_OVER]


def test_one_element_may_be_held_alone() -> None:
    world = cell()
    world.tell(admitted(array(3, hold=True)))
    assert starts(world.tell(ReleaseJob(cell=CELL, job="many.1"))) == ["many.1"]


def test_an_update_reaches_all_elements() -> None:
    world = cell()
    world.tell(admitted(array(2, hold=True)))
    world.tell(update("many", priority=7))
    assert [world.job(job).spec.priority for job in ("many.0", "many.1")] == [7, 7]


def test_nobody_cancels_the_array_of_another_tenant() -> None:
    world = cell()
    world.tell(admitted(array(2)))
    assert codes(world.tell(cancel("many", "bob"))) == [RefuseCode.NOT_THE_TENANTS_JOB]


def test_a_job_waits_for_a_whole_array() -> None:
    world = cell()
    world.tell(admitted(array(2)), admitted(spec_of("next", 1, after=(Dependency(job="many"),))))
    assert starts(end(world, "many.1")) == []
    assert kinds(end(world, "many.0")) == ["JobFinished", "JobReady", "JobStarted"]


def test_an_array_of_which_one_element_fails_has_failed() -> None:
    world = cell()
    world.tell(admitted(array(2)), admitted(spec_of("next", 1, after=(Dependency(job="many"),))))
    end(world, "many.0", well=False)
    (ended,) = (x for x in end(world, "many.1") if isinstance(x, e.JobCancelled))
    assert (ended.job, ended.reason, ended.because_of) == ("next", CancelReason.DEPENDENCY_FAILED, "many")
    assert world.state.finished["many"].status is JobStatus.FAILED


def test_a_whole_array_waits_for_a_job() -> None:
    world = cell()
    world.tell(admitted(spec_of("first", 1)), admitted(array(2, after=(Dependency(job="first"),))))
    assert kinds(end(world, "first")) == ["JobFinished", "JobReady", "JobReady", "JobStarted", "JobStarted"]


def test_an_array_cannot_wait_for_a_job_that_waits_for_one_of_its_elements() -> None:
    world = cell()
    world.tell(admitted(spec_of("first", 1, after=(Dependency(job="many.1"),))))
    assert codes(world.tell(admitted(array(2, after=(Dependency(job="first"),))))) == [RefuseCode.AFTER_ITSELF]


def test_an_array_that_is_over_leaves_nothing_but_its_memory() -> None:
    world = cell()
    world.tell(admitted(array(2)))
    end(world, "many.0", "many.1")
    assert (world.state.arrays, world.state.jobs) == ({}, {})
    assert world.state.finished["many"].status is JobStatus.FINISHED


def test_a_new_writer_knows_how_many_run() -> None:
    world = cell()
    world.tell(admitted(array(4, array_max_running=2)))
    world.restart()
    assert world.state.arrays["many"].holding == 2
    assert starts(end(world, "many.0")) == ["many.2"]


def test_a_reader_is_told_that_the_array_keeps_an_element() -> None:
    world = cell()
    world.tell(admitted(array(2, array_max_running=1)))
    assert why_not(world.state, world.job("many.1"), (), 0).codes == (PendingReason.ARRAY_LIMIT,)


@pytest.mark.parametrize("count", [1, 1_000])
def test_the_smallest_and_the_largest_array_come_whole(count: int) -> None:
    world = cell()
    world.tell(admitted(array(count)), size_bytes=300)
    assert (len(world.state.jobs), world.state.arrays["many"].left) == (count, count)


def updated(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.job for effect in effects if isinstance(effect, e.JobUpdated)]


def held_array(count: int = 100) -> World:
    world = cell()
    world.tell(admitted(array(count, hold=True)))
    return world


def test_an_update_is_told_of_the_elements_that_it_changes_and_of_one_in_any_case() -> None:
    world = held_array()
    world.tell(update("many.7", priority=5))
    assert len(updated(world.tell(update("many", priority=3)))) == 100
    assert updated(world.tell(update("many", priority=3))) == ["many.0"]
    world.tell(update("many.7", priority=5))
    assert updated(world.tell(update("many", priority=3))) == ["many.0", "many.7"]


def test_what_no_element_can_do_is_refused_once() -> None:
    world = held_array()
    assert codes(world.tell(update("many", workers=2))) == [RefuseCode.UNSUPPORTED]


def test_of_updates_that_wait_together_the_last_one_changes_all_elements_and_each_has_an_answer() -> None:
    world = held_array()
    effects = world.tell(*(update("many", priority=number) for number in range(1, 21)))
    assert len(updated(effects)) == 19 + 100
    assert updated(effects).count("many.0") == 20
    assert {job.spec.priority for job in world.state.jobs.values()} == {20}


CHANGES = st.fixed_dictionaries(
    {},
    optional={"priority": st.integers(-2, 2), "max_run_ms": st.integers(1, 3), "workers": st.just(2)},
).filter(bool)


@st.composite
def updates(draw: st.DrawFn) -> JobUpdateRequested:
    name = draw(st.sampled_from(["many", "many", "other", "many.1"]))
    return update(name, draw(st.sampled_from(["ada", "ada", "bob"])), **draw(CHANGES))


PART = FILE.cells[0]
BOUNDED = FILE.model_copy(
    update={"cells": (PART.model_copy(update={"queues": (Queue(name="bounded", max_run_ms=2), *PART.queues)}),)}
)


@given(st.lists(updates(), max_size=12))
def test_updates_that_are_read_together_come_to_the_same_as_one_after_the_other(
    listed: list[JobUpdateRequested],
) -> None:
    at_once, singly = World(BOUNDED), World(BOUNDED)
    for world in (at_once, singly):
        world.tell(admitted(array(3, hold=True)), admitted(array(2, "other", hold=True, queue="default")))
    before = [job.spec for job in at_once.state.jobs.values()]
    at_once.tell(*listed)
    for each in listed:
        singly.tell(each)
    specs, others = ([job.spec for job in world.state.jobs.values()] for world in (at_once, singly))
    assert specs == others
    reaches("updates change jobs of an array", specs != before)


def test_of_holds_and_releases_that_wait_together_the_last_ones_change_all_elements() -> None:
    world = cell()
    world.tell(admitted(array(100, array_max_running=1)))
    effects = world.tell(*[HoldJob(cell=CELL, job="many"), ReleaseJob(cell=CELL, job="many")] * 20)
    assert len(effects) < 100
    assert {job.status for job in world.state.jobs.values()} == {JobStatus.STARTING, JobStatus.QUEUED}
    effects = world.tell(*[HoldJob(cell=CELL, job="many")] * 3)
    assert kinds(effects).count("JobHeld") == 99


HOLDS = st.builds(
    lambda kind, job: kind(cell=CELL, job=job),
    st.sampled_from([HoldJob, ReleaseJob]),
    st.sampled_from(["many", "many", "other", "many.1"]),
)


@given(st.lists(HOLDS, max_size=12))
def test_holds_that_are_read_together_come_to_the_same_as_one_after_the_other(
    listed: list[HoldJob | ReleaseJob],
) -> None:
    at_once, singly = World(FILE), World(FILE)
    for world in (at_once, singly):
        world.tell(admitted(array(3)), admitted(array(2, "other", hold=True)))
    before = [job.status for job in at_once.state.jobs.values()]
    at_once.tell(*listed)
    for each in listed:
        singly.tell(each)
    found, others = ([job.status for job in world.state.jobs.values()] for world in (at_once, singly))
    assert found == others
    reaches("jobs of an array are held or released", found != before)
