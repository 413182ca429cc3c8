"""I2 between tenants: each has ids of its own, and its jobs are touched by no other tenant."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Dependency
from fallow.shared.events.jobs import JobCancelRequested, JobUpdateRequested
from fallow.shared.events.reasons import CancelReason, RefuseCode
from fallow.shared.events.submissions import JobChanges
from fallow.simulator.history.evidence import Wish
from fallow.simulator.history.rules.tenants.owners import STRANGERS_WORDS
from tests.cluster.worlds.examples import enqueued
from tests.simulator.history.story import CELL, Story, admitted, two_nodes

READ: dict[str, Any] = {"inputs": {"jobs-0": 1}}
STRANGER = "bob"
REQUESTS = {
    "cancel": JobCancelRequested(cell=CELL, job="ada/job", tenant=STRANGER),
    "update": JobUpdateRequested(cell=CELL, job="ada/job", tenant=STRANGER, changes=JobChanges(priority=3)),
}
OBEYED = {
    "cancel": e.JobCancelled(job="ada/job", reason=CancelReason.ASKED),
    "update": e.JobUpdated.of(enqueued("ada/job", priority=3).spec),
}


def with_job() -> Story:
    return two_nodes().decide(enqueued("ada/job"))


def test_two_tenants_use_one_id() -> None:
    story = with_job().answered(admitted("bob/job", tenant="bob")).decide(enqueued("bob/job", tenant="bob"), **READ)
    assert story.broken() == []


@pytest.mark.parametrize("job", [enqueued("ada/other", tenant="bob"), enqueued("adam/job", tenant="ada")])
def test_a_job_is_accepted_under_the_name_of_another_tenant(job: e.JobEnqueued) -> None:
    assert with_job().decide(job).broken() == ["I2"]


def test_a_job_waits_for_the_job_of_a_stranger() -> None:
    waits = enqueued("bob/next", tenant="bob", after=(Dependency(job="ada/job"),))
    assert with_job().decide(waits).texts() == ["job bob/next waits for ada/job, which is another tenant's"]


def test_an_id_is_told_to_be_used_that_another_tenant_uses() -> None:
    refused = e.JobRefused(job="bob/job", request="submit", code=RefuseCode.ID_USED_BEFORE)
    story = with_job().answered(admitted("bob/job", tenant="bob")).decide(refused, **READ)
    assert story.texts() == ["job bob/job is refused as one that was there before, and there was none"]


def test_what_is_said_in_a_tenants_name_by_another_topic_than_its_own_is_passed_on() -> None:
    said = JobCancelRequested(cell=CELL, job="ada/job", tenant="ada", reason=STRANGERS_WORDS)
    texts = with_job().answered(said).texts()
    assert texts[-1:] == ["job ada/job is to be cancelled by a sender that may not speak for ada"]


@pytest.mark.parametrize("request_", list(REQUESTS))
def test_the_word_of_a_stranger_is_obeyed(request_: str) -> None:
    story = with_job().answered(REQUESTS[request_]).decide(OBEYED[request_], **READ)
    assert f"the {request_} of job ada/job by bob was read and not refused" in story.texts()


@pytest.mark.parametrize("request_", list(REQUESTS))
def test_the_word_of_a_stranger_is_refused(request_: str) -> None:
    refused = e.JobRefused(job="ada/job", request=request_, code=RefuseCode.NOT_THE_TENANTS_JOB)
    assert with_job().answered(REQUESTS[request_]).decide(refused, **READ).broken() == []


def test_the_answer_to_one_tenant_is_none_to_the_other() -> None:
    story = two_nodes().answered(admitted("ada/job")).decide(enqueued("ada/job"), e.JobCancelled(
        job="ada/job", reason=CancelReason.ASKED), **READ)  # fmt: skip
    story.wishes = [Wish("submit", "ada/job"), Wish("submit", "bob/job")]
    told = [text for text in story.texts(is_drained=True) if "acknowledged" in text]
    assert told == ["1 acknowledged commands to submit job bob/job have 0 answers"]
