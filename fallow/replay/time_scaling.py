"""A generated day for a cell whose clock is the wall's: the same jobs in less time, under names of their own."""

from __future__ import annotations

from fallow.replay.workload import Timed, Workload
from fallow.shared.events.base import Command
from fallow.shared.events.fields.job_ids import full_id, parted
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, RetryPolicy, VirtualRun
from fallow.shared.events.submissions import CancelJob, SubmitJob


def squeezed(workload: Workload, *, factor: float, prefix: str) -> Workload:
    """Every time and duration divided by `factor`, every id behind `prefix` and a dash.

    The pools are those of another cell file, so each job goes to the pools of its kind.
    """
    commands = tuple(
        Timed(int(timed.at_ms / factor), _squeezed(timed.command, factor, prefix)) for timed in workload.commands
    )
    return Workload(
        commands=commands,
        nodes=workload.nodes,
        cell_file=workload.cell_file,
        endless=frozenset(_renamed(job, prefix) for job in workload.endless),
    )


def _renamed(job: str, prefix: str) -> str:
    """The job by its new name: in full if it was."""
    tenant, own = parted(job)
    return full_id(tenant, f"{prefix}-{own}")


def _squeezed(command: Command, factor: float, prefix: str) -> Command:
    if isinstance(command, CancelJob):
        return replace(command, job=_renamed(command.job, prefix))
    assert isinstance(command, SubmitJob), "a day has submissions and cancels"
    submit_ms = None if command.submit_ms is None else int(command.submit_ms / factor)
    return SubmitJob(job=_job(command.job, factor, prefix), submit_ms=submit_ms)


def _job(job: JobSpec, factor: float, prefix: str) -> JobSpec:
    run = job.run
    assert isinstance(run, VirtualRun), "a day's jobs only take time"
    quick = replace(run, duration_ms=_less(run.duration_ms, factor), fail_at_ms=_less(run.fail_at_ms, factor))
    retry = RetryPolicy(budget=job.retry.budget, backoff_ms=int(job.retry.backoff_ms / factor))
    return replace(job, id=_renamed(job.id, prefix), pools=(), run=quick, retry=retry)


def _less(ms: int | None, factor: float) -> int | None:
    return None if ms is None else int(ms / factor)
