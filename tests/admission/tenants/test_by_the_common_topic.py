"""A tenant with a topic of its own is heard by that one alone: the common one, which others may write, moves nothing of
its, takes nothing from it, and tells nothing in its jobs' stories.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.admission.service import AdmissionService
from fallow.shared.client.answers import Progress, Stage, is_no_to
from fallow.shared.client.port import News
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import SUBMISSION_BYTES_MAX, Undecodable
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobRejected, JobUpdateRequested
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.runtime.files.cell_file import parse_cell_file
from tests.admission.commands import CANCEL, NOW_MS, SUBMIT, UPDATE, bytes_of

TEXT = """
cells: [{name: main, ordinal: 0, pools: [{name: training, gpus: 64}]}]
tenants: [{name: alice, own_topic: true, submissions: {per_s: 1, burst: 2}}, {name: bob}]
"""
FILE = parse_cell_file(TEXT, "cell")
WITHOUT = parse_cell_file(TEXT.replace(", own_topic: true", ""), "cell")

VALID: list[tuple[str, dict[str, Any]]] = [
    (SUBMIT, {"job": {"id": "train", "tenant": "alice"}}),
    (SUBMIT, {"job": {"id": "alice/train", "tenant": "alice"}}),
    (SUBMIT, {"job": {"id": "train", "tenant": "alice", "array": 8}}),
    (CANCEL, {"job": "train", "tenant": "alice"}),
    (CANCEL, {"job": "alice/train", "tenant": "alice", "cell": "main"}),
    (UPDATE, {"job": "train", "tenant": "alice", "changes": {"priority": 1}}),
    (UPDATE, {"job": "alice/train", "tenant": "alice", "changes": {"workers": 4}}),
]
NOT_VALID: list[tuple[str, dict[str, Any]]] = [
    (SUBMIT, {"job": {"id": "train", "tenant": "alice", "workers": 0}}),
    (SUBMIT, {"job": {"id": "train", "tenant": "alice", "queue": "none"}}),
    (CANCEL, {"job": "train", "tenant": "alice", "cell": "none"}),
    (UPDATE, {"job": "train", "tenant": "alice", "changes": {}}),
    ("fallow.job.cancel.v9", {"job": "train", "tenant": "alice"}),
    (CANCEL, {"job": "train", "tenant": "alice", "reason": "x" * SUBMISSION_BYTES_MAX}),
]
KINDS = {SUBMIT: "submit", CANCEL: "cancel", UPDATE: "update", "fallow.job.cancel.v9": "cancel"}

PASSED_ON = (JobAdmitted, JobCancelRequested, JobUpdateRequested)


def answer(type_: str, command: dict[str, Any], by: str | None) -> Event | Undecodable:
    return AdmissionService(FILE).answer(type_, bytes_of(command), by, NOW_MS)


def rejected(type_: str, command: dict[str, Any]) -> JobRejected:
    found = answer(type_, command, None)
    assert isinstance(found, JobRejected), found
    return found


@pytest.mark.parametrize(("type_", "command"), VALID + NOT_VALID)
def test_what_comes_by_the_common_topic_in_its_name_is_turned_away(type_: str, command: dict[str, Any]) -> None:
    found = rejected(type_, command)
    assert (found.code, found.command) == (RejectCode.TENANT_NOT_OF_TOPIC, KINDS[type_])
    assert (found.field, found.value) == ("tenant", "alice")
    assert found.rule == "is heard by its own topic alone: submissions.alice"


@pytest.mark.parametrize(("type_", "command"), VALID)
def test_the_same_by_its_own_topic_is_passed_on(type_: str, command: dict[str, Any]) -> None:
    assert isinstance(answer(type_, command, "alice"), PASSED_ON)


@pytest.mark.parametrize(("type_", "command"), VALID + NOT_VALID)
def test_the_no_is_about_no_job_of_it_and_no_answer_to_it(type_: str, command: dict[str, Any]) -> None:
    no = rejected(type_, command)
    assert (no.job, no.tenant, no.cell) == ("train", None, None)
    assert not any(is_no_to(no, kind, "alice") for kind in ("submit", "cancel", "update"))
    progress = Progress.of_specs([JobSpec(id="train", tenant="alice")])
    assert not progress.take(News("main", no))
    assert progress.stages == {"alice/train": Stage.UNANSWERED}


@pytest.mark.parametrize("of", ["bob", "absent"])
def test_another_tenant_that_names_its_job_is_turned_away_as_ever(of: str) -> None:
    found = rejected(CANCEL, {"job": "alice/train", "tenant": of})
    assert (found.code, found.tenant) == (RejectCode.INVALID_FIELD, of)


def test_a_tenant_without_one_is_heard_by_the_common_topic() -> None:
    for type_, command in VALID:
        text = bytes_of(command).replace(b"alice", b"bob")
        assert isinstance(AdmissionService(FILE).answer(type_, text, None, NOW_MS), PASSED_ON)


@pytest.mark.parametrize(("type_", "command"), VALID)
def test_the_next_cell_file_says_by_which_topic_it_is_heard(type_: str, command: dict[str, Any]) -> None:
    service, text = AdmissionService(WITHOUT), bytes_of(command)
    for file, is_heard in ((WITHOUT, True), (FILE, False), (WITHOUT, True)):
        service.reload(file)
        assert isinstance(service.answer(type_, text, None, NOW_MS), PASSED_ON) is is_heard
        assert isinstance(service.answer(type_, text, "alice", NOW_MS), PASSED_ON)  # while there is such a topic


def test_a_flood_by_the_common_topic_takes_none_of_its_tokens() -> None:
    service, text = AdmissionService(FILE), bytes_of(VALID[0][1])
    assert [service.over_rate(SUBMIT, text, None, 1_000) for _ in range(100)] == [None] * 100
    assert [service.over_rate(SUBMIT, text, "alice", 1_000) is None for _ in range(3)] == [True, True, False]


def test_what_names_nobody_is_set_aside_as_ever() -> None:
    found = AdmissionService(FILE).answer(SUBMIT, b'{"job": {"tenant": "alice"}}', None, NOW_MS)
    assert isinstance(found, Undecodable)
    assert found.reason is DeadLetterReason.INVALID
