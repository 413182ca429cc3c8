"""Admission passes on what was submitted, with its home and the jobs' names in full, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec
from fallow.shared.events.jobs import JobAdmitted, JobCancelRequested, JobUpdateRequested
from fallow.shared.events.submissions import CancelJob, SubmitJob, UpdateJob

Command = SubmitJob | CancelJob | UpdateJob

File = Mapping[str, Any]


def by_job(submissions: Iterable[Command]) -> dict[str, list[Command]]:
    """What was said of each job, by its name in full."""
    found: dict[str, list[Command]] = {}
    for command in submissions:
        tenant, job = (command.job.tenant, command.job.id) if isinstance(command, SubmitJob) else (
            command.tenant, command.job)  # fmt: skip
        found.setdefault(_in_full(tenant, job), []).append(command)
    return found


def _in_full(tenant: str, job: str) -> str:
    return job if "/" in job else f"{tenant}/{job}"


def passed_on_unasked(event: Event, said: Mapping[str, Sequence[Command]], files: Sequence[File]) -> str | None:
    """Why this record of `jobs` comes from no submission, or None. By one of these cell files it was admitted."""
    match event:
        case JobAdmitted(spec=spec):
            is_so = any(isinstance(each, SubmitJob) and _is_of(each, event, files) for each in said.get(spec.id, ()))
            return None if is_so else f"job {spec.id} is admitted otherwise than it was submitted"
        case JobCancelRequested(job=job, tenant=tenant):
            is_so = any(isinstance(each, CancelJob) and each.tenant == tenant for each in said.get(job, ()))
            return None if is_so else f"a cancel of job {job} by {tenant} is passed on, and none was sent"
        case JobUpdateRequested(job=job, tenant=tenant, changes=changes):
            is_so = any(
                isinstance(each, UpdateJob) and (each.tenant, each.changes) == (tenant, changes)
                for each in said.get(job, ())
            )
            return None if is_so else f"an update of job {job} by {tenant} is passed on, and it was not sent"
    return None


def _is_of(submitted: SubmitJob, admitted: JobAdmitted, files: Sequence[File]) -> bool:
    """Whether the one is the other with its home: a cell, a queue, those of the pools that may be, and how long it may
    run there.
    """
    asked, got = submitted.job, admitted.spec
    if asked.cell not in (None, got.cell) or asked.queue not in (None, got.queue) or got.cell != admitted.cell:
        return False
    if asked.pools and not all(pool in asked.pools for pool in got.pools):
        return False
    if submitted.submit_ms not in (None, admitted.submit_ms):
        return False
    if files and not any(_is_limited(asked.max_run_ms, got, file) for file in files):
        return False
    return _at_home(asked, got) == got


def _is_limited(told_ms: int | None, got: JobSpec, file: File) -> bool:
    """Whether the run time of a job that told this limit, or none, is bounded as its queue has it."""
    queues = (queue for cell in file["cells"] if cell["name"] == got.cell for queue in cell["queues"])
    for queue in queues:
        if queue["name"] == got.queue:
            bound_ms = queue.get("max_run_ms")
            if told_ms is not None:
                return got.max_run_ms == told_ms and (bound_ms is None or told_ms <= bound_ms)
            return bool(got.max_run_ms == (queue.get("default_run_ms") or bound_ms))
    return got.max_run_ms == told_ms


def _at_home(asked: JobSpec, got: JobSpec) -> JobSpec:
    tenant = asked.tenant
    return replace(
        asked,
        id=_in_full(tenant, asked.id),
        after=tuple(replace(each, job=_in_full(tenant, each.job)) for each in asked.after),
        cell=got.cell,
        queue=got.queue,
        pools=got.pools,
        max_run_ms=got.max_run_ms if asked.max_run_ms is None else asked.max_run_ms,
        gang=asked.kind is not JobKind.INFERENCE and (asked.gang or asked.workers == 1),
    )
