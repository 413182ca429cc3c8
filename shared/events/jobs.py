"""Topic `jobs`: what admission made of the tenants' wishes. One writer, read by placement."""

from __future__ import annotations

import re
from typing import Annotated, get_args

from msgspec import Meta
from pydantic import StringConstraints

from fallow.shared.events.base import LANGUAGE, CellEvent, Event, JobId, Millis, Name, Text, Value
from fallow.shared.events.fields.job_ids import is_name
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.reasons import RejectCode
from fallow.shared.events.submissions import JobChanges

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""16 bytes of BLAKE2b in hexadecimal."""


JOBS_MAX = 100
"""So many admitted jobs fit into one record."""


_ID, _NAME, _DIGEST = (get_args(alias)[1].pattern[1:-1] for alias in (JobId, Name, Digest))
_JOB = re.compile(_ID)
_REQUEST = re.compile(f"{_ID} {_NAME}")
_OF_CONTENT = re.compile(_DIGEST)


def _check_admitted(spec: JobSpec, digest: str) -> None:
    """Raise ValueError where the job's id, tenant or queue is no name, the digest is none, or a job that it names has
    no id. All else that a name stands for is looked up among what the cell has. These enter the state as they are,
    and from there the view, where they stand in one line; and of a digest the state keeps 16 bytes.
    """
    are_names = is_name(spec.tenant) and (spec.queue is None or is_name(spec.queue))
    if not are_names or _JOB.fullmatch(spec.id) is None or _OF_CONTENT.fullmatch(digest) is None:
        raise ValueError("spec: its id, tenant or queue is no name, or the digest is none")
    if spec.after or spec.array_of is not None:
        named = [*(each.job for each in spec.after), *(() if spec.array_of is None else (spec.array_of,))]
        if not all(map(_JOB.fullmatch, named)):
            raise ValueError("spec: a job of its after or array_of has no id")


def _check_request(job: str, tenant: str) -> None:
    """Raise ValueError where the job or the tenant is no name: the refusal of a request names both in the log."""
    if _REQUEST.fullmatch(f"{job} {tenant}") is None:
        raise ValueError("job: it or its tenant is no name")


class JobEvent(Event):
    """A record about one job for one cell."""

    cell: Name
    job: JobId

    def key(self) -> str:
        """The job."""
        return self.job


class JobAdmitted(Event, type=f"fallow.job.admitted.{LANGUAGE}", topic="jobs"):
    """The job is valid and could run at some time. Queue, pools and cell are resolved in `spec`.

    `digest` is taken over the content as submitted, without the time, so that the same job sent twice is known as one.
    `sent_ms` is the cell time at which the broker got the submission, None in a stepped cell: one that is handled late,
    or again, must not run a second time.
    """

    cell: Name
    spec: JobSpec
    submit_ms: Millis
    digest: Digest
    sent_ms: Millis | None = None

    def __post_init__(self) -> None:
        _check_admitted(self.spec, self.digest)

    def key(self) -> str:
        """The job."""
        return self.spec.id


class AdmittedJob(Value):
    """One job among several: the content of `JobAdmitted`."""

    spec: JobSpec
    submit_ms: Millis
    digest: Digest
    sent_ms: Millis | None = None

    def __post_init__(self) -> None:
        _check_admitted(self.spec, self.digest)


class JobsAdmitted(CellEvent, type=f"fallow.jobs.admitted.{LANGUAGE}", topic="jobs"):
    """Jobs that were admitted at nearly the same time, in the order of their submissions.

    It means the same as a record for each job. One record for many costs everybody who reads it far less.
    """

    jobs: Annotated[tuple[AdmittedJob, ...], Meta(min_length=1, max_length=JOBS_MAX)]


class JobRejected(Event, type=f"fallow.job.rejected.{LANGUAGE}", topic="jobs"):
    """The command is not valid, or asks for what can never be. `cell` is None where no cell could be told.

    `field`, `value` and `rule` say what is wrong; `wanted` and `allowed` are the numbers where there are any.
    """

    cell: Name | None = None
    job: JobId
    tenant: str | None = None
    command: str
    code: RejectCode
    field: Text = ""
    value: Text = ""
    rule: Text = ""
    wanted: int | None = None
    allowed: int | None = None

    def key(self) -> str:
        """The job."""
        return self.job


class JobCancelRequested(JobEvent, type=f"fallow.job.cancel-requested.{LANGUAGE}", topic="jobs"):
    """Its tenant wants the job stopped. `sent_ms` is the cell time at which the broker got the request, None in a
    stepped cell: one from before the job was submitted was meant for an earlier job of the same id.
    """

    tenant: Name
    reason: Text = ""
    sent_ms: Millis | None = None

    def __post_init__(self) -> None:
        _check_request(self.job, self.tenant)


class JobUpdateRequested(JobEvent, type=f"fallow.job.update-requested.{LANGUAGE}", topic="jobs"):
    """Its tenant wants the job changed. `sent_ms` as of a cancel."""

    tenant: Name
    changes: JobChanges
    sent_ms: Millis | None = None

    def __post_init__(self) -> None:
        _check_request(self.job, self.tenant)
