"""A job's own earliest start, by the cell time at which the job comes."""

from __future__ import annotations

import pytest

from fallow.services.admission.service import AdmissionService
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from tests.admission.commands import FILE, SUBMIT, submit

TODAY_MS = 1_795_600_000_000


@pytest.mark.parametrize("unit_ms", [1_000, 60_000, 3_600_000])
def test_where_time_is_the_calendars_a_time_in_a_larger_unit_is_turned_away(unit_ms: int) -> None:
    in_an_hour = (TODAY_MS + 3_600_000) // unit_ms
    found = AdmissionService(FILE).answer(SUBMIT, submit(not_before_ms=in_an_hour), None, TODAY_MS)
    assert isinstance(found, JobRejected)
    assert (found.code, found.field, found.value) == ("invalid_field", "not_before_ms", str(in_an_hour))
    assert "milliseconds since 1970" in found.rule


@pytest.mark.parametrize(
    ("came_ms", "not_before_ms"),
    [(TODAY_MS, TODAY_MS + 3_600_000), (TODAY_MS, TODAY_MS - 10**9), (TODAY_MS, 0), (5_000, 3_600), (5_000, 9_000)],
)
def test_any_other_time_is_taken(came_ms: int, not_before_ms: int) -> None:
    """One that is over, too: a file may be sent a day late. Where time has an origin of its own nothing tells units."""
    found = AdmissionService(FILE).answer(SUBMIT, submit(not_before_ms=not_before_ms), None, came_ms)
    assert isinstance(found, JobAdmitted)


def test_a_job_may_wait_for_as_long_as_the_limit_says_and_no_millisecond_longer() -> None:
    ahead_ms = FILE.limits.not_before_ahead_ms
    last, late = (
        AdmissionService(FILE).answer(SUBMIT, submit(not_before_ms=TODAY_MS + ms), None, TODAY_MS)
        for ms in (ahead_ms, ahead_ms + 1)
    )
    assert isinstance(last, JobAdmitted)
    assert isinstance(late, JobRejected)
    assert (late.code, late.wanted, late.allowed) == ("not_before_too_far", ahead_ms + 1, ahead_ms)
