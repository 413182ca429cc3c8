"""A no to another tenant's command, or to another command, is no answer to one's own: any tenant may name any job."""

from __future__ import annotations

import pytest

from fallow.cli.job import scale
from fallow.services.admission.service import AdmissionService
from fallow.shared.client.answers import Progress, Stage, is_no_to
from fallow.shared.client.port import News
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.job_ids import digest_of
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RefuseCode, RejectCode
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from fallow.shared.runtime.files.cell_file import parse_cell_file

FILE = parse_cell_file(
    """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 8}]}]
tenants: [{name: alice}, {name: mallory, own_topic: true}]
""",
    "cell",
)
OF_ALICE = JobSpec(id="train", tenant="alice")


def rejected(command: Event, topic_tenant: str | None) -> JobRejected:
    answer = AdmissionService(FILE).answer(command.type, encode(command), topic_tenant, 0)
    assert isinstance(answer, JobRejected)
    return answer


NOT_TO_ALICE = [
    rejected(CancelJob(job="train", tenant="alice"), "mallory"),
    rejected(SubmitJob(job=OF_ALICE), "mallory"),
    rejected(UpdateJob(job="train", tenant="mallory", changes=JobChanges(workers=100_000)), "mallory"),
    rejected(CancelJob(job="alice/train", tenant="mallory"), None),
    rejected(SubmitJob(job=JobSpec(id="train", tenant="mallory", queue="none")), "mallory"),
    JobRejected(job="alice/train", tenant=None, command="submit", code=RejectCode.INVALID_FIELD),
    e.JobRefused(job="alice/train", request="submit", code=RefuseCode.ID_USED_BEFORE, tenant="mallory"),
]
NOT_TO_A_SUBMISSION = [
    rejected(CancelJob(job="train", tenant="alice", cell="none"), None),
    e.JobRefused(job="alice/train", request="hold", code=RefuseCode.UNKNOWN_JOB),
    e.JobRefused(job="alice/train", request="cancel", code=RefuseCode.UNKNOWN_JOB, tenant="alice"),
]


@pytest.mark.parametrize("event", NOT_TO_ALICE + NOT_TO_A_SUBMISSION)
@pytest.mark.parametrize("stage", [Stage.UNANSWERED, Stage.WAITING, Stage.RUNNING])
def test_a_no_that_is_for_others_moves_no_job(event: JobRejected | e.JobRefused, stage: Stage) -> None:
    progress = Progress.of_specs([OF_ALICE])
    progress.stages["alice/train"] = stage
    assert not progress.take(News("main", event))
    assert progress.stages == {"alice/train": stage}


def test_a_no_to_ones_own_submission_is_the_answer_while_there_is_none() -> None:
    no = rejected(SubmitJob(job=JobSpec(id="train", tenant="alice", queue="none")), None)
    progress = Progress.of_specs([OF_ALICE])
    assert progress.take(News("main", no))
    assert (progress.stages, progress.reasons) == ({"alice/train": Stage.REJECTED}, {"alice/train": no})
    progress.stages["alice/train"] = Stage.RUNNING
    assert not progress.take(News("main", no))


@pytest.mark.parametrize("array", [None, 2])
def test_of_a_submission_that_is_accepted_no_earlier_no_is_told(array: int | None) -> None:
    """Of one id there may be several submissions: an earlier one of other content was turned away."""
    sent = JobSpec(id="train", tenant="alice", array=array)
    progress = Progress.of_specs([sent])
    progress.take(News("main", rejected(SubmitJob(job=JobSpec(id="train", tenant="alice", queue="none")), None)))
    assert [*progress.reasons] == ["alice/train"]
    for job in progress.stages:
        spec = JobSpec(id=job, tenant="alice", array_of=None if array is None else "alice/train")
        assert progress.take(News("main", e.JobEnqueued(spec=spec, submit_ms=0, digest=digest_of(sent))))
    assert progress.reasons == {}
    assert not progress.turned_away


@pytest.mark.parametrize("event", NOT_TO_ALICE)
def test_a_command_to_a_job_is_not_answered_by_what_is_for_others(event: JobRejected | e.JobRefused) -> None:
    assert not any(is_no_to(event, command, "alice") for command in ("submit", "cancel", "update"))


def test_a_command_to_a_job_is_answered_by_a_no_to_the_same_command_of_the_same_tenant() -> None:
    no = rejected(CancelJob(job="train", tenant="alice", cell="none"), None)
    assert is_no_to(no, "cancel", "alice")
    assert not is_no_to(no, "update", "alice")
    assert is_no_to(e.JobRefused(job="alice/train", request="hold", code=RefuseCode.UNKNOWN_JOB), "hold", None)


def test_another_number_of_replicas_is_the_answer_to_another_scale() -> None:
    updated = e.JobUpdated(job="alice/train", tenant="alice", priority=0, workers=4, workers_min=2)
    answered = [
        scale._is_answer("alice", changes, News("main", updated))
        for changes in (
            JobChanges(workers=8),
            JobChanges(workers=4, workers_min=4),
            JobChanges(workers=4),
            JobChanges(workers=4, workers_min=2),
        )
    ]
    assert answered == [False, False, True, True]
