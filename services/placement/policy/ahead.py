"""Jobs that are alike and stand one behind the other are placed together: what decides is the same for all of them, and
each but the first costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.placement.policy.gang import Places, place_alike
from shared.cluster.job import Job, JobStatus
from shared.cluster.maintenance import longest_run_ms
from shared.cluster.state import CellState
from shared.events.values import GPU, JobSpec

TOGETHER_MOST = 64


class Ahead:
    """Places found for the next jobs of one line. They hold while nothing but these jobs starts, and no node is full of
    starts by that.
    """

    __slots__ = ("_changes", "_jobs", "_places")

    def __init__(self) -> None:
        self._jobs: list[str] = []
        self._places: list[Places] = []
        self._changes = 0

    def has(self, job_id: str) -> bool:
        """Whether a place was found for this job along with one before it: then its shape is none that does not fit."""
        return bool(self._jobs) and self._jobs[-1] == job_id

    def take(self, state: CellState, jobs: Sequence[str], number: int, job: Job, now_ms: int) -> Places | None:
        """A place for this job, number `number` of the line, if it comes with others of its kind; else None."""
        changes = 0 if state.unacknowledged is None else state.unacknowledged.changes
        if self._jobs and self._jobs[-1] == job.spec.id and self._changes == changes:
            self._jobs.pop()
            return self._places.pop()
        run = [] if job.avoid else _run_from(state, jobs, number, job.spec, now_ms)
        if not run:
            self._jobs, self._places = [], []
            return None
        found = place_alike(state, job.spec, len(run))
        self._places = [(place,) for place in reversed(found)]
        self._jobs, self._changes = run[1 : len(found)][::-1], changes
        return self._places.pop() if found else None


def _run_from(state: CellState, jobs: Sequence[str], number: int, spec: JobSpec, now_ms: int) -> list[str]:
    """The jobs from here on that are alike and may start; none where it is one alone. None but those of one worker of
    whole GPUs, with no wish for a place and none to be alone there, are alike. A job that avoids nodes ends the row.
    """
    if spec.workers != 1 or spec.resources.gpu_milli < GPU or spec.topology is not None or spec.exclusive:
        return []
    run = [spec.id]
    known = state.jobs
    for job_id in jobs[number + 1 : number + TOGETHER_MOST]:
        job = known.get(job_id)
        if job is None or job.status is not JobStatus.QUEUED or job.not_before_ms > now_ms or job.avoid:
            break
        if not are_alike(job.spec, spec) or (
            state.closing and longest_run_ms(state, job.spec) != longest_run_ms(state, spec)
        ):
            break
        run.append(job_id)
    return run if len(run) > 1 else []


def are_alike(spec: JobSpec, other: JobSpec) -> bool:
    """Whether whatever places one of them decides the same for the other."""
    return (
        (spec.resources is other.resources or spec.resources == other.resources)
        and spec.workers == other.workers
        and spec.tenant == other.tenant
        and spec.pools == other.pools
        and spec.gpu_type == other.gpu_type
        and spec.topology == other.topology
        and spec.kind is other.kind
        and spec.spread is other.spread
        and spec.preemptible is other.preemptible
        and spec.node_labels == other.node_labels
        and spec.tolerations == other.tolerations
        and spec.exclusive is other.exclusive
    )
