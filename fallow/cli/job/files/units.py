"""Wishes in job files that were most likely meant in another unit: `gpu_milli: 8` is no eight GPUs, and
`max_run_ms: 3600` no hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.cli.output.durations import SECOND_MS, duration
from fallow.shared.events.fields.values import GPU, JobSpec

SELDOM_BELOW_MILLI = 100
"""So small a part of a GPU or CPU is hardly ever wished for."""

SELDOM_BELOW_MS = 60_000
"""So soon a job is hardly ever to be ended by a limit of its run."""

TOLD_MAX = 5


def odd_units(jobs: Sequence[JobSpec]) -> Iterator[str]:
    """A line for each wish for almost nothing, of the first few jobs that have one."""
    found = [line for job in jobs for line in _of(job)]
    yield from found[:TOLD_MAX]
    if len(found) > TOLD_MAX:
        yield f"and {len(found) - TOLD_MAX} more wishes of this kind"


def _of(job: JobSpec) -> Iterator[str]:
    wishes = job.resources
    for field, milli, what in (("gpu_milli", wishes.gpu_milli, "GPU"), ("cpu_milli", wishes.cpu_milli, "CPU")):
        if 0 < milli < SELDOM_BELOW_MILLI:
            meant = f"{milli} whole {what}s would be {milli * GPU}"
            yield f"{job.id}: resources.{field} = {milli} is {milli / GPU:g} of a {what} for each worker; {meant}"
    if job.max_run_ms is not None and job.max_run_ms < SELDOM_BELOW_MS:
        limit_ms = job.max_run_ms
        meant = f"{limit_ms} s would be {limit_ms * SECOND_MS}"
        yield f"{job.id}: max_run_ms = {limit_ms} ends it when it has run for {duration(limit_ms)}; {meant}"
