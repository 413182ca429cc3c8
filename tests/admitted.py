"""What a record of the topic `jobs` says, one job at a time: jobs that come thick are admitted in one record."""

from __future__ import annotations

from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import Undecodable
from fallow.shared.events.jobs import JobAdmitted, JobsAdmitted


def singly(event: Event | Undecodable) -> list[Event | Undecodable]:
    """The event as one event for each job: jobs that were admitted together come one by one."""
    if not isinstance(event, JobsAdmitted):
        return [event]
    return [
        JobAdmitted(cell=event.cell, spec=job.spec, submit_ms=job.submit_ms, digest=job.digest) for job in event.jobs
    ]
