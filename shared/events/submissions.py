"""Topic `submissions`: what tenants wish for their jobs. Written by upstream systems, read by admission."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fallow.shared.events.base import LARGEST_INTEGER, Command, JobId, Line, Millis, Name, Value
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.values import WORKERS_MAX, JobSpec


class SubmitJob(Command, type="fallow.job.submit.v1", topic="submissions"):
    """Run this job. Its tenant's id makes it idempotent: the same content again gets the earlier answer.

    `submit_ms` is the cell time at which the job began to wait (None: when admission sees it).
    """

    job: JobSpec
    submit_ms: Millis | None = None

    def key(self) -> str:
        """The job, in full: its submit, updates and cancel keep their order."""
        return full_id(self.job.tenant, self.job.id)


class CancelJob(Command, type="fallow.job.cancel.v1", topic="submissions"):
    """Stop this job, wherever it is. `cell` may be left out where the tenant has only one."""

    job: JobId
    tenant: Name
    cell: Name | None = None
    reason: Line = ""

    def key(self) -> str:
        """The job, in full."""
        return full_id(self.tenant, self.job)


class JobChanges(Value):
    """What of a job may be changed after its submission; None leaves a thing as it is."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    workers: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    workers_min: Annotated[int, Meta(ge=1, le=WORKERS_MAX)] | None = None
    max_run_ms: Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)] | None = None

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """At least one change."""
        if all(getattr(self, name) is None for name in JobChanges.__struct_fields__):
            raise ValueError("names nothing to change")


class UpdateJob(Command, type="fallow.job.update.v1", topic="submissions"):
    """Change a job that waits or runs."""

    job: JobId
    tenant: Name
    cell: Name | None = None
    changes: JobChanges

    def key(self) -> str:
        """The job, in full."""
        return full_id(self.tenant, self.job)
