"""Jobs that are alike and stand one behind the other are placed together: what decides is the same for all of them, and
each but the first costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.placement.policy.gang import Places, place_alike
from shared.cluster.job import Job, JobStatus
from shared.cluster.state import CellState
from shared.events.values import GPU, JobSpec

TOGETHER_MOST = 64


class Ahead:
    """Places found for the next jobs of one line. They hold while nothing but these jobs starts."""

    __slots__ = ("_places", "_spec")

    def __init__(self) -> None:
        self._spec: JobSpec | None = None
        self._places: list[Places] = []

    def take(self, state: CellState, jobs: Sequence[str], number: int, job: Job, now_ms: int) -> Places | None:
        """A place for this job, number `number` of the line, if it comes with others of its kind; else None."""
        spec = job.spec
        if self._places and self._spec is not None and are_alike(spec, self._spec):
            return self._places.pop()
        self._places.clear()
        many = _run_from(state, jobs, number, spec, now_ms)
        if many > 1:
            self._spec = spec
            self._places = [(place,) for place in reversed(place_alike(state, spec, many))]
        return self._places.pop() if self._places else None


def _run_from(state: CellState, jobs: Sequence[str], number: int, spec: JobSpec, now_ms: int) -> int:
    """How many jobs from here on are alike and may start. None but of one worker of whole GPUs and no wish are."""
    if spec.workers != 1 or spec.resources.gpu_milli < GPU or spec.topology is not None:
        return 0
    many = 1
    for job_id in jobs[number + 1 : number + TOGETHER_MOST]:
        job = state.jobs.get(job_id)
        if job is None or job.status is not JobStatus.QUEUED or job.not_before_ms > now_ms:
            break
        if not are_alike(job.spec, spec):
            break
        many += 1
    return many


def are_alike(spec: JobSpec, other: JobSpec) -> bool:
    """Whether whatever places one of them decides the same for the other."""
    return (
        spec.resources == other.resources
        and spec.workers == other.workers
        and spec.tenant == other.tenant
        and spec.pools == other.pools
        and spec.gpu_type == other.gpu_type
        and spec.topology == other.topology
        and spec.kind is other.kind
        and spec.spread is other.spread
    )
