"""Submits, cancels, updates, holds: what placement does with them in each state of a job."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.requests.requests import CLOCKS_APART_MS
from fallow.services.placement.service import Input
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.base import Event
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind
from fallow.shared.events.jobs import AdmittedJob, JobRejected, JobsAdmitted
from fallow.shared.events.operations import HoldJob, ReleaseJob, ReloadCell
from fallow.shared.events.reasons import RefuseCode, RejectCode, StopReason
from fallow.shared.events.submissions import CancelJob
from tests.placement.worlds.world import (
    CELL,
    DIGEST,
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
    lost,
    set_policy,
    spec_of,
    started,
    stopped,
    update,
)

OTHER = "f" * 32
WISHES = (HoldJob(cell=CELL, job="job"), ReleaseJob(cell=CELL, job="job"))


def with_job(status: str) -> World:
    """A cell with one job of two nodes in this status. While it waits there are none."""
    world = cell_with()
    if status in ("starting", "running", "stopping", "finished"):
        world.tell(joined("n1"), joined("n2"))
    world.tell(admitted(spec_of("job", 8, workers=2, hold=status == "held")))
    if status in ("running", "stopping", "finished"):
        world.tell(started("job", "n1"), started("job", "n2"))
    if status == "stopping":
        world.tell(failed("job", "n1"))
    if status == "finished":
        world.tell(finished("job", "n1"), finished("job", "n2"))
    if status == "cancelled":
        world.tell(cancel("job"))
    return world


def test_an_admitted_job_waits() -> None:
    world = with_job("queued")
    assert (world.job("job").status, world.job("job").digest, world.state.waiting) == (JobStatus.QUEUED, DIGEST, 1)


def test_a_job_that_is_submitted_with_a_hold_is_held() -> None:
    world = with_job("held")
    assert world.job("job").status is JobStatus.HELD
    assert kinds(world.tell(joined("n1"), joined("n2"))) == ["NodeChanged"] * 2


@pytest.mark.parametrize("status", ["queued", "held", "running", "finished", "cancelled"])
def test_the_same_submit_again_changes_nothing(status: str) -> None:
    world = with_job(status)
    assert world.tell(admitted(spec_of("job", 8, workers=2), submit_ms=999)) == []


@pytest.mark.parametrize("status", ["queued", "running", "finished"])
def test_an_id_used_for_other_content_is_refused(status: str) -> None:
    world = with_job(status)
    assert codes(world.tell(admitted(spec_of("job"), digest=OTHER))) == [RefuseCode.ID_USED_BEFORE]


def forgetful(count: int) -> World:
    """A cell that remembers one job that is over, after so many that were cancelled, a second apart."""
    world = cell_with()
    world.tell(set_policy(finished_jobs_max=1))
    for number in range(count):
        world.pass_time(1_000)
        world.tell(admitted(spec_of(f"job-{number}"), submit_ms=world.now_ms))
        world.tell(cancel(f"job-{number}"))
    return world


def test_a_submission_from_a_time_that_is_forgotten_does_not_run_a_second_time() -> None:
    world = forgetful(3)
    forgotten_ms = world.state.finished.forgotten_ms
    again = replace(admitted(spec_of("job-0")), sent_ms=forgotten_ms - 500)
    assert codes(world.tell(again)) == [RefuseCode.SUBMISSION_TOO_OLD]
    many = JobsAdmitted(
        cell=CELL, jobs=(AdmittedJob(spec=spec_of("job-1"), submit_ms=0, digest=DIGEST, sent_ms=forgotten_ms),)
    )
    assert codes(world.tell(many)) == [RefuseCode.SUBMISSION_TOO_OLD]
    assert not world.state.jobs


def test_a_late_submission_of_a_time_that_is_remembered_is_accepted() -> None:
    world = forgetful(3)
    late = replace(admitted(spec_of("late")), sent_ms=world.state.finished.forgotten_ms + 1)
    assert kinds(world.tell(late))[0] == "JobEnqueued"


def test_a_submission_of_now_may_use_a_forgotten_id() -> None:
    world = forgetful(3)
    assert kinds(world.tell(admitted(spec_of("job-0"))))[0] == "JobEnqueued"


def test_a_submission_that_is_remembered_gets_its_answer_again_however_old_it_is() -> None:
    world = forgetful(3)
    assert world.tell(replace(admitted(spec_of("job-2")), sent_ms=0)) == []


def test_a_full_cell_takes_no_further_job() -> None:
    world = cell_with()
    world.tell(set_policy(max_pending_jobs=1))
    assert codes(world.tell(admitted(spec_of("a")), admitted(spec_of("b")))) == [RefuseCode.TOO_MANY_WAITING]
    assert list(world.state.jobs) == ["a"]


@pytest.mark.parametrize("status", ["queued", "held"])
def test_a_waiting_job_is_cancelled_at_once(status: str) -> None:
    world = with_job(status)
    assert kinds(world.tell(cancel("job"))) == ["JobCancelled"]
    assert world.state.finished["job"].status is JobStatus.CANCELLED


@pytest.mark.parametrize("status", ["starting", "running"])
def test_a_running_job_stops_and_is_cancelled_when_all_of_its_nodes_say_so(status: str) -> None:
    world = with_job(status)
    assert kinds(world.tell(cancel("job"))) == ["JobStopping"]
    assert kinds(world.tell(stopped("job", "n1"))) == ["RunObserved"]
    assert world.state.nodes["n1"].gpus_free == 0
    assert kinds(world.tell(stopped("job", "n2"))) == ["JobCancelled"]
    assert world.state.nodes["n1"].gpus_free == 8


def test_a_cancel_overtakes_another_reason_to_stop() -> None:
    world = with_job("stopping")
    assert world.job("job").stop_why is StopReason.WORKER_FAILED
    assert kinds(world.tell(cancel("job"))) == ["JobStopping"]
    assert kinds(world.tell(stopped("job", "n2"))) == ["JobCancelled"]


def test_a_second_cancel_changes_nothing() -> None:
    world = with_job("running")
    world.tell(cancel("job"))
    assert world.tell(cancel("job")) == []
    world.tell(stopped("job", "n1"), stopped("job", "n2"))
    assert world.tell(cancel("job")) == []


def test_a_job_that_finished_before_it_could_stop_has_finished() -> None:
    world = with_job("running")
    world.tell(cancel("job"))
    assert kinds(world.tell(finished("job", "n1"), finished("job", "n2"))) == ["JobFinished"]


@pytest.mark.parametrize(
    ("status", "request_", "code"),
    [
        ("queued", cancel("other"), RefuseCode.UNKNOWN_JOB),
        ("queued", cancel("job", "bob"), RefuseCode.NOT_THE_TENANTS_JOB),
        ("running", cancel("job", "bob"), RefuseCode.NOT_THE_TENANTS_JOB),
        ("finished", cancel("job"), RefuseCode.ALREADY_OVER),
        ("finished", cancel("job", "bob"), RefuseCode.NOT_THE_TENANTS_JOB),
        ("queued", update("other", priority=1), RefuseCode.UNKNOWN_JOB),
        ("queued", update("job", "bob", priority=1), RefuseCode.NOT_THE_TENANTS_JOB),
        ("finished", update("job", priority=1), RefuseCode.ALREADY_OVER),
        ("cancelled", update("job", priority=1), RefuseCode.ALREADY_OVER),
        ("queued", update("job", workers=1), RefuseCode.UNSUPPORTED),
        ("queued", update("job", workers_min=1), RefuseCode.UNSUPPORTED),
        ("queued", HoldJob(cell=CELL, job="other"), RefuseCode.UNKNOWN_JOB),
        ("running", HoldJob(cell=CELL, job="job"), RefuseCode.WRONG_STATE),
        ("running", ReleaseJob(cell=CELL, job="job"), RefuseCode.WRONG_STATE),
        ("finished", HoldJob(cell=CELL, job="job"), RefuseCode.ALREADY_OVER),
        ("finished", ReleaseJob(cell=CELL, job="job"), RefuseCode.ALREADY_OVER),
        ("cancelled", HoldJob(cell=CELL, job="job"), RefuseCode.ALREADY_OVER),
        ("cancelled", ReleaseJob(cell=CELL, job="job"), RefuseCode.ALREADY_OVER),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(status: str, request_: object, code: RefuseCode) -> None:
    world = with_job(status)
    effects = world.tell(request_)  # type: ignore[arg-type]
    assert (kinds(effects), codes(effects)) == (["JobRefused"], [code])


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "a gang keeps its number of workers"),
        ({"gang": False}, "only a service can change its number of workers"),
        ({"kind": JobKind.INFERENCE}, "a gang keeps its number of workers"),
    ],
)
def test_why_a_job_keeps_its_number_of_workers_is_told_by_what_it_is(how: dict[str, Any], text: str) -> None:
    world = World()
    world.tell(admitted(spec_of("job", 8, workers=2, **how)))
    effects = world.tell(update("job", workers=1))
    assert [effect.text for effect in effects if isinstance(effect, JobRefused)] == [text]


@pytest.mark.parametrize("request_", [cancel("job"), update("job", priority=1), *WISHES])
def test_whatever_is_asked_of_a_job_that_is_over_is_answered_with_how_it_ended(request_: object) -> None:
    effects = with_job("finished").tell(request_)  # type: ignore[arg-type]
    assert [effect.text for effect in effects if isinstance(effect, JobRefused)] == ["it is finished"]


def test_an_update_changes_priority_and_limit_and_nothing_else() -> None:
    world = with_job("queued")
    world.tell(update("job", priority=7, max_run_ms=5))
    assert world.job("job").spec == spec_of("job", 8, workers=2, priority=7, max_run_ms=5)


def in_short(**limits: Any) -> World:
    """A cell with a job in a queue with these limits, which the cell file has said."""
    part = FILE.cells[0].model_copy(update={"queues": (Queue(name="day"), Queue(name="short", **limits))})
    world = World(FILE.model_copy(update={"cells": (part,)}))
    world.tell(admitted(spec_of("job", queue="short", max_run_ms=7)), admitted(spec_of("other", queue="day")))
    return world


def test_an_update_gives_a_job_no_longer_run_than_its_queue_allows() -> None:
    world = in_short(max_run_ms=9)
    assert kinds(world.tell(update("job", max_run_ms=9))) == ["JobUpdated"]
    (refused,) = world.tell(update("job", max_run_ms=10, priority=3))
    assert isinstance(refused, JobRefused)
    assert (refused.code, refused.text) == (
        RefuseCode.WRONG_STATE,
        "max_run_ms 10: queue short lets a job run for 9 ms at most",
    )
    assert (world.job("job").spec.max_run_ms, world.job("job").spec.priority) == (9, 0)
    assert kinds(world.tell(update("other", max_run_ms=10))) == ["JobUpdated"]


def test_a_job_that_has_its_limit_keeps_it_when_its_queue_comes_to_allow_less() -> None:
    world = in_short(max_run_ms=9)
    cell = world.file.cells[0].model_copy(update={"queues": (Queue(name="short", max_run_ms=3),)})
    world.file_read = world.file.model_copy(update={"cells": (cell,)})
    world.tell(ReloadCell(cell=CELL))
    assert world.job("job").spec.max_run_ms == 7
    assert kinds(world.tell(update("job", priority=3))) == ["JobUpdated"]
    assert codes(world.tell(update("job", max_run_ms=4))) == [RefuseCode.WRONG_STATE]


def test_a_running_job_may_be_updated() -> None:
    world = with_job("running")
    assert kinds(world.tell(update("job", priority=7))) == ["JobUpdated"]


def test_an_update_that_changes_nothing_is_answered_all_the_same() -> None:
    world = with_job("queued")
    world.tell(update("job", priority=7))
    assert kinds(world.tell(update("job", priority=7))) == ["JobUpdated"]


def test_a_held_job_starts_when_it_is_released() -> None:
    world = with_job("queued")
    assert kinds(world.tell(HoldJob(cell=CELL, job="job"))) == ["JobHeld"]
    assert world.tell(HoldJob(cell=CELL, job="job")) == []
    assert kinds(world.tell(joined("n1"), joined("n2"))) == ["NodeChanged"] * 2
    assert kinds(world.tell(ReleaseJob(cell=CELL, job="job"))) == ["JobReleased", "JobStarted"]


def test_a_record_that_cannot_be_read_is_passed_and_the_next_one_counts() -> None:
    world = cell_with()
    assert kinds(world.tell(None, admitted(spec_of("job")))) == ["JobEnqueued", "JobDeferred"]
    assert world.state.inputs["jobs-0"] == 2


def test_a_job_of_a_lost_node_may_be_cancelled() -> None:
    world = with_job("running")
    world.tell(lost("n1"))
    assert kinds(world.tell(cancel("job"))) == ["JobStopping"]
    assert kinds(world.tell(stopped("job", "n2"))) == ["JobCancelled"]


def test_a_command_in_a_topic_that_is_not_its_own_is_set_aside_with_a_reason() -> None:
    world = with_job("queued")
    world.service.take([Input("operations-0", 1, CancelJob(job="job", tenant="ada"))])
    assert world.rest() == []
    assert [stray.text for _, stray in world.service.take_strays()] == [
        "ce_type: placement reads no fallow.job.cancel.v1"
    ]


def test_what_admission_tells_its_clients_needs_nothing_of_placement() -> None:
    world = with_job("queued")
    assert world.tell(JobRejected(job="other", command="submit", code=RejectCode.UNKNOWN_TENANT)) == []
    assert world.service.take_strays() == []


def test_jobs_that_waited_for_their_admission_are_accepted_while_others_end_fast() -> None:
    """All were sent before any of them ended, one after the other, and so they are taken: none has run before."""
    world = cell_with()
    world.tell(set_policy(finished_jobs_max=1))
    begin_ms = world.now_ms
    world.pass_time(10_000)
    for number in range(50):
        sent = {"submit_ms": begin_ms + number, "sent_ms": begin_ms + number}
        made = kinds(world.tell(replace(admitted(spec_of(f"job-{number}")), **sent)))
        assert made[0] == "JobEnqueued", number
        world.pass_time(10)
        world.tell(cancel(f"job-{number}"))
    again = replace(admitted(spec_of("job-0")), sent_ms=begin_ms)
    assert codes(world.tell(again)) == [RefuseCode.SUBMISSION_TOO_OLD]


SENT_MS = 45_000
"""When the second job of the id was sent."""


def used_twice(**more: Any) -> World:
    """An id of which the cell has forgotten the first job, and a second one waits."""
    world = forgetful(3)
    world.pass_time(60_000)
    world.tell(replace(admitted(spec_of("job-0", **more), submit_ms=0), sent_ms=SENT_MS))
    assert "job-0" in world.state.jobs or "job-0" in world.state.arrays
    return world


LONG_AGO_MS = SENT_MS - CLOCKS_APART_MS - 1
"""Earlier than two clocks may be apart."""

OF_LONG_AGO = {
    "cancel": replace(cancel("job-0"), sent_ms=LONG_AGO_MS),
    "update": replace(update("job-0", priority=7), sent_ms=LONG_AGO_MS),
}


@pytest.mark.parametrize("array", [None, 3])
@pytest.mark.parametrize("what", OF_LONG_AGO)
def test_a_request_of_long_ago_that_comes_again_concerns_no_later_job_of_the_same_id(
    what: str, array: int | None
) -> None:
    world = used_twice(array=array)
    before = dict(world.state.jobs)
    assert codes(world.tell(OF_LONG_AGO[what])) == [RefuseCode.REQUEST_TOO_OLD]
    assert world.state.jobs == before
    assert codes(world.tell(replace(OF_LONG_AGO[what], sent_ms=LONG_AGO_MS + 1))) == []


@pytest.mark.parametrize("array", [None, 3])
def test_a_request_of_long_ago_tells_another_tenant_nothing_of_the_job(array: int | None) -> None:
    request = replace(cancel("job-0", tenant="bob"), sent_ms=LONG_AGO_MS)
    (refused,) = used_twice(array=array).tell(request)
    assert isinstance(refused, JobRefused)
    assert (refused.code, refused.text) == (RefuseCode.NOT_THE_TENANTS_JOB, "")


@pytest.mark.parametrize("array", [None, 3])
def test_a_hold_of_long_ago_that_comes_again_concerns_no_later_job_of_the_same_id(array: int | None) -> None:
    world = used_twice(array=array)
    world.sent_ms = LONG_AGO_MS
    assert codes(world.tell(HoldJob(cell=CELL, job="job-0"))) == [RefuseCode.REQUEST_TOO_OLD]
    world.sent_ms = LONG_AGO_MS + 1
    assert set(kinds(world.tell(HoldJob(cell=CELL, job="job-0")))) == {"JobHeld"}


@pytest.mark.parametrize("operation", [HoldJob, ReleaseJob])
def test_an_operation_right_behind_its_job_may_bear_the_stamp_of_a_broker_whose_clock_is_behind(
    operation: type[HoldJob | ReleaseJob],
) -> None:
    world = cell_with()
    world.tell(replace(admitted(spec_of("job"), submit_ms=world.now_ms), sent_ms=world.now_ms))
    world.sent_ms = world.now_ms - 5
    assert codes(world.tell(operation(cell=CELL, job="job"))) == []


DAY_MS = 86_400_000


def stamped_ahead(world: World, job: str, *, array: int | None = None) -> Event:
    """A submission that a broker got whose clock was a day ahead."""
    ahead_ms = world.now_ms + DAY_MS
    return replace(admitted(spec_of(job, array=array), submit_ms=ahead_ms), sent_ms=ahead_ms)


@pytest.mark.parametrize("array", [None, 2])
def test_a_job_that_was_stamped_by_a_clock_that_is_ahead_can_be_cancelled(array: int | None) -> None:
    world = cell_with()
    world.tell(stamped_ahead(world, "job", array=array))
    world.pass_time(60_000)
    made = kinds(world.tell(replace(cancel("job"), sent_ms=world.now_ms)))
    assert made == ["JobCancelled"] * (array or 1)


def test_a_stamp_that_was_ahead_lets_no_later_submission_be_refused() -> None:
    world = cell_with()
    world.tell(set_policy(finished_jobs_max=1))
    for job in ("odd", "next", "last"):
        sent = stamped_ahead(world, job) if job == "odd" else replace(admitted(spec_of(job)), sent_ms=world.now_ms)
        assert kinds(world.tell(sent))[0] == "JobEnqueued", job
        world.tell(cancel(job))
        world.pass_time(1_000)
    assert world.state.finished.forgotten_ms < world.now_ms


def test_a_job_that_was_stamped_by_a_clock_that_is_ahead_has_its_place_by_when_it_came() -> None:
    world = cell_with()
    came_ms = world.now_ms
    world.tell(stamped_ahead(world, "odd"))
    assert world.state.jobs["odd"].submit_ms == world.state.jobs["odd"].came_ms == came_ms


def test_a_request_without_a_time_is_carried_out() -> None:
    """A stepped cell knows no other time than the one that it is told."""
    assert kinds(used_twice().tell(cancel("job-0"))) == ["JobCancelled"]
