"""Admission's answers, as records: jobs that were admitted one after the other go together into few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fallow.shared.events.base import Event
from fallow.shared.events.jobs import JOBS_MAX, AdmittedJob, JobAdmitted, JobsAdmitted

JOBS_BYTES_MAX = 60_000
"""So many bytes of admitted jobs make one record: placement takes a record into a decision whole."""


class Answered(NamedTuple):
    """An answer, how many bytes it has if it admits a job, and the command's place in the submissions."""

    answer: Event
    size_bytes: int
    place: str


def as_records(answered: Iterable[Answered]) -> Iterator[tuple[Event, str]]:
    """The records that say all this in the same order, each with the place of its first command (`+n`: and of n more).

    What is not an admission stands alone and stays where it is: it may be about a job before it.
    """
    jobs: list[JobAdmitted] = []
    place, room = "", JOBS_BYTES_MAX
    for each in answered:
        answer = each.answer
        fits = bool(jobs) and isinstance(answer, JobAdmitted) and answer.cell == jobs[0].cell and not _is_array(answer)
        if not fits or len(jobs) == JOBS_MAX or each.size_bytes > room:
            yield from _as_one(jobs, place)
            jobs, place, room = [], each.place, JOBS_BYTES_MAX
        if isinstance(answer, JobAdmitted):
            jobs.append(answer)
            room = 0 if _is_array(answer) else room - each.size_bytes
        else:
            yield answer, each.place
    yield from _as_one(jobs, place)


def _is_array(answer: JobAdmitted) -> bool:
    """Whether it stands for many jobs: that is a record of its own, for placement makes a large one of it."""
    return answer.spec.array is not None


def _as_one(jobs: list[JobAdmitted], place: str) -> Iterator[tuple[Event, str]]:
    if len(jobs) == 1:
        yield jobs[0], place
    elif jobs:
        admitted = tuple(
            [
                AdmittedJob(spec=job.spec, submit_ms=job.submit_ms, digest=job.digest, sent_ms=job.sent_ms)
                for job in jobs
            ]
        )
        yield JobsAdmitted(cell=jobs[0].cell, jobs=admitted), f"{place}+{len(jobs) - 1}"
