"""Answers that come thick are few records, and say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.admission.policy.records import JOBS_BYTES_MAX, Answered, as_records
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JOBS_MAX, AdmittedJob, JobAdmitted, JobCancelRequested, JobsAdmitted
from tests.hypothesis_profile import reaches

DIGEST = "0" * 32


def admitted(job: str, cell: str = "cell-a") -> JobAdmitted:
    return JobAdmitted(cell=cell, spec=JobSpec(id=job, tenant="vision"), submit_ms=0, digest=DIGEST)


def cancel(job: str) -> JobCancelRequested:
    return JobCancelRequested(cell="cell-a", job=job, tenant="vision")


def answered(*answers: Event, size_bytes: int = 100) -> list[Answered]:
    return [Answered(answer, size_bytes, str(number)) for number, answer in enumerate(answers)]


def in_short(answers: list[Answered]) -> list[str]:
    """One record: `a b @0+1`, where its jobs came first at place 0 and one more stands behind."""
    return [f"{' '.join(_jobs(event))} @{place}" for event, place in as_records(answers)]


def _jobs(event: Event) -> list[str]:
    if isinstance(event, JobsAdmitted):
        return [job.spec.id for job in event.jobs]
    return [event.spec.id if isinstance(event, JobAdmitted) else f"cancel-{event.job}"]  # type: ignore[attr-defined]


def test_jobs_that_come_one_after_the_other_are_one_record() -> None:
    assert in_short(answered(admitted("a"), admitted("b"), admitted("c"))) == ["a b c @0+2"]


def test_a_job_alone_is_a_record_of_its_own() -> None:
    assert list(as_records(answered(admitted("a")))) == [(admitted("a"), "0")]


def test_a_cancel_stays_between_the_jobs_before_and_behind_it() -> None:
    assert in_short(answered(admitted("a"), admitted("b"), cancel("a"), admitted("a"))) == [
        "a b @0+1",
        "cancel-a @2",
        "a @3",
    ]


def test_jobs_of_two_cells_are_no_record_together() -> None:
    assert in_short(answered(admitted("a"), admitted("b", "cell-b"), admitted("c"))) == ["a @0", "b @1", "c @2"]


def test_a_record_stays_small_however_large_the_jobs() -> None:
    assert in_short(answered(admitted("a"), admitted("b"), admitted("c"), size_bytes=JOBS_BYTES_MAX // 2)) == [
        "a b @0+1",
        "c @2",
    ]


def test_a_record_holds_a_bounded_number_of_jobs() -> None:
    records = list(as_records(answered(*[admitted(f"job-{number}") for number in range(JOBS_MAX + 1)])))
    assert [type(event) for event, _ in records] == [JobsAdmitted, JobAdmitted]


@given(st.lists(st.sampled_from(["a", "b", "cancel"]), max_size=30), st.integers(1, JOBS_BYTES_MAX))
def test_nothing_is_lost_and_the_order_stays(kinds: list[str], size_bytes: int) -> None:
    said = [cancel(f"{n}") if kind == "cancel" else admitted(f"{n}", f"cell-{kind}") for n, kind in enumerate(kinds)]
    records = list(as_records(answered(*said, size_bytes=size_bytes)))
    reaches("jobs stand together in a record, and others in another one", 1 < len(records) < len(said))
    heard = [one for event, _ in records for one in _singly(event)]
    assert heard == said


def _singly(event: Event) -> list[Event]:
    if isinstance(event, JobsAdmitted):
        return [_alone(event.cell, job) for job in event.jobs]
    return [event]


def _alone(cell: str, job: AdmittedJob) -> JobAdmitted:
    return JobAdmitted(cell=cell, spec=job.spec, submit_ms=job.submit_ms, digest=job.digest)


def test_an_array_is_a_record_of_its_own() -> None:
    spec = JobSpec(id="many", tenant="vision", array=3)
    array = JobAdmitted(cell="cell-a", spec=spec, submit_ms=0, digest=DIGEST)
    assert in_short(answered(admitted("a"), array, admitted("b"), admitted("c"))) == ["a @0", "many @1", "b c @2+1"]
