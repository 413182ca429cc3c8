"""What a record carries beside its value."""

from __future__ import annotations

from fallow.shared.events.base import LANGUAGE
from fallow.shared.events.jobs import JobCancelRequested
from fallow.shared.events.submissions import CancelJob
from fallow.shared.log.layout import Layout

LAYOUT = Layout("fallow", {"east": 0, "west": 1})


def test_a_record_of_ours_carries_what_cloud_events_ask_for_and_no_more() -> None:
    event = JobCancelRequested(cell="west", job="job-1", tenant="ada")
    found = LAYOUT.outgoing(event, id="an-id", source="admission-1", wall_ms=1_000, more=(("chain", b"c"),))
    assert (found.topic, found.partition, found.key) == ("fallow.jobs", 1, b"job-1")
    assert found.headers == (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"an-id"),
        ("ce_source", b"admission-1"),
        ("ce_type", f"fallow.job.cancel-requested.{LANGUAGE}".encode()),
        ("chain", b"c"),
    )


def test_a_command_also_says_when_it_was_written_and_how() -> None:
    found = LAYOUT.outgoing(CancelJob(job="job-1", tenant="ada"), id="an-id", source="cli", wall_ms=1_000)
    assert [name for name, _ in found.headers] == [
        *("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type"),
    ]
