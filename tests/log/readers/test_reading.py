"""What a record says depends on where it stands: nothing is obeyed in the topic of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.events.base import TYPES, Event
from fallow.shared.events.codec.encoding import TYPE_HEADER, Undecodable, encode
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import DeadLetterReason, RejectCode
from fallow.shared.events.submissions import CancelJob
from fallow.shared.log.inputs.dead_letters import dead_letter
from fallow.shared.log.machine.consumer import Dead
from fallow.shared.log.port import HEADERS_MAX, Record
from fallow.shared.log.reading import event_of, header, log_record, unreadable
from tests.hypothesis_profile import reaches
from tests.strategies import events

TOPICS = sorted({cls.topic for cls in TYPES.values()})


def record(event: Event, topic: str) -> Record:
    return Record(topic, 0, 0, b"key", encode(event), ((TYPE_HEADER, event.type.encode()),), 0)


@given(
    event=events(),
    other=st.none() | st.sampled_from(TOPICS),
    namespace=st.sampled_from(["fallow", "jobs", "a.b", "submissions"]),
)
def test_a_record_says_something_in_its_own_topic_only(event: Event, other: str | None, namespace: str) -> None:
    topic = event.topic if other is None else other
    found = event_of(record(event, f"{namespace}.{topic}"))
    reaches("a record stands in its own topic", topic == event.topic)
    if topic == event.topic:
        assert found == event
    else:
        assert isinstance(found, Undecodable)
        assert found.reason is DeadLetterReason.UNKNOWN_TYPE
        assert str(found) == f"ce_type: belongs in topic {event.topic}, not in {topic} (got {event.type})"


@pytest.mark.parametrize("tenant", ["ada", "jobs"])
def test_a_tenants_own_topic_takes_submissions_only(tenant: str) -> None:
    cancel = CancelJob(job="job-1", tenant="ada")
    rejected = JobRejected(job="job-1", command="submit", code=RejectCode.UNKNOWN_TENANT)
    assert event_of(record(cancel, f"fallow.submissions.{tenant}")) == cancel
    assert isinstance(event_of(record(rejected, f"fallow.submissions.{tenant}")), Undecodable)


@given(event=events().filter(lambda event: event.topic != "decisions"))
def test_nothing_but_a_decision_is_an_entry_of_the_log(event: Event) -> None:
    assert isinstance(log_record(record(event, "fallow.decisions"), keys=None).decision, Undecodable)


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_of_as_many_headers_as_are_read_the_last_one_counts_and_of_one_more_none(more: int, is_read: bool) -> None:
    headers = ((TYPE_HEADER, b"first"), *[("", b"")] * (HEADERS_MAX - 2 + more), (TYPE_HEADER, b"x"))
    found = Record("t.jobs", 0, 0, b"key", b"v", headers, 0)
    assert (header(found, TYPE_HEADER) == "x", unreadable(found) is None) == (is_read, is_read)
    letter = dict(dead_letter(Dead(found, "unreadable", ""), service="s", namespace="ns").headers)
    assert ("not_exact" in letter) is not is_read
