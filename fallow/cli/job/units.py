"""Wishes in job files that were most likely meant in another unit: `gpu_milli: 8` is no eight GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fallow.shared.events.values import GPU, JobSpec

SELDOM_BELOW_MILLI = 100
"""So small a part of a GPU or CPU is hardly ever wished for."""

TOLD_MOST = 5


def odd_units(jobs: Sequence[JobSpec]) -> Iterator[str]:
    """A line for each wish for almost nothing, of the first few jobs that have one."""
    found = [line for job in jobs for line in _of(job)]
    yield from found[:TOLD_MOST]
    if len(found) > TOLD_MOST:
        yield f"and {len(found) - TOLD_MOST} more wishes of this kind"


def _of(job: JobSpec) -> Iterator[str]:
    wishes = job.resources
    for field, milli, what in (("gpu_milli", wishes.gpu_milli, "GPU"), ("cpu_milli", wishes.cpu_milli, "CPU")):
        if 0 < milli < SELDOM_BELOW_MILLI:
            meant = f"{milli} whole {what}s would be {milli * GPU}"
            yield f"{job.id}: resources.{field} = {milli} is {milli / GPU:g} of a {what} for each worker; {meant}"
