"""A job as the cell knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, NamedTuple

from fallow.shared.cluster.model.workers_index import WorkersIndex
from fallow.shared.events.fields.values import JobSpec, RunStatus, Setback, WorkerPlace
from fallow.shared.events.reasons import PendingReason, StopReason


class JobStatus(StrEnum):
    """Where a job is in its life: awaiting other jobs' ends, queued, ... The last three are final."""

    QUEUED = "queued"
    HELD = "held"
    AWAITING = "awaiting"
    STARTING = "starting"
    RUNNING = "running"
    RESIZING = "resizing"
    STOPPING = "stopping"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Tuples: to look into one costs no hash of an enum, and texts that list them are the same under any hash seed.
WAITING = (JobStatus.QUEUED, JobStatus.HELD, JobStatus.AWAITING)
HOLDING = (JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RESIZING, JobStatus.STOPPING)
FINAL = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED)

NO_RUNS: Final[dict[str, RunStatus]] = {}
"""The runs of every job that waits, shared by all of them and never changed."""


@dataclass(slots=True)
class Job:
    """A job that waits or runs. `workers` are the places that it holds; `runs` says what each node said of this
    attempt. `done` are the ranks of a job that is no gang whose work is over for good, `turns` how often workers have
    entered this attempt, `setbacks` by rank what went wrong of late and which ranks wait, over all attempts. It does
    not start before `not_before_ms`; while it runs that is when the last rank's pause is over. `waits_for` are those of
    its `after` that are not over yet, `broken_by` the one that came to a wrong end. `losses` counts losses in a row by
    no fault of its own: of single workers the most of any rank. `avoid` are the nodes of its last failures. `held_why`
    is why it is held, if that is no wish of a person. `stopping_ms` is since when its nodes are to stop it, until they
    have said that they did, or were told to be late. `number` tells as which of all jobs of the cell it came, `sent_ms`
    when its submission was sent, where that is not `submit_ms`. It has stopped for the live jobs `yielded_to`, and does
    so for none of them twice. `spec_bytes` is what its specification takes, an index.
    """

    spec: JobSpec
    submit_ms: int
    digest: str
    status: JobStatus = JobStatus.QUEUED
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    avoid: tuple[str, ...] = ()
    held_why: str = ""
    preemptions: int = 0
    not_before_ms: int = 0
    deferred: PendingReason | None = None
    workers: tuple[WorkerPlace, ...] = ()
    joining: tuple[WorkerPlace, ...] = ()
    leaving: tuple[int, ...] = ()
    runs: dict[str, RunStatus] = field(default_factory=lambda: NO_RUNS)
    first_start_ms: int | None = None
    started_ms: int | None = None
    running_ms: int | None = None
    stop_why: StopReason | None = None
    stop_for: str = ""
    stop_text: str = ""
    stop_grace_wall_ms: int = 0
    stopping_ms: int | None = None
    waits_for: tuple[str, ...] = ()
    broken_by: str = ""
    backfilled: bool = False
    backfilled_over: str = ""
    turns: int = 0
    done: tuple[int, ...] = ()
    setbacks: tuple[Setback, ...] = ()
    number: int = 0
    sent_ms: int | None = None
    yielded_to: tuple[str, ...] = ()
    index: WorkersIndex | None = field(default=None, compare=False, repr=False)
    spec_bytes: int = field(default=0, compare=False, repr=False)

    @property
    def id(self) -> str:
        """The job's id."""
        return self.spec.id

    @property
    def came_ms(self) -> int:
        """When its submission came. What was asked for before that was asked of an earlier job of this id."""
        return self.submit_ms if self.sent_ms is None else self.sent_ms


def wait_reason(status: JobStatus, deferred: PendingReason | None) -> PendingReason | None:
    """Why a job in this status waits. Placement looks at none that is held or awaits others: what it said last,
    `deferred`, is of the time before.
    """
    return _IN_THEMSELVES.get(status, deferred)


_IN_THEMSELVES: Final = {JobStatus.HELD: PendingReason.HELD, JobStatus.AWAITING: PendingReason.AFTER}


def index_of(job: Job) -> WorkersIndex:
    """The index of the job's workers as they are now."""
    index = job.index
    if index is None or index.workers is not job.workers:
        index = job.index = WorkersIndex(job.workers)
    return index


def worker_of(job: Job, rank: int) -> WorkerPlace | None:
    """The job's worker of this rank. Until one has left, each stands at the place of its rank."""
    workers = job.workers
    if rank < len(workers) and workers[rank].rank == rank:
        return workers[rank]
    return index_of(job).find(rank)


attempt_of: Final[Callable[[Job], tuple[Any, ...]]] = attrgetter(
    "status",
    "attempt",
    "workers",
    "joining",
    "leaving",
    "runs",
    "started_ms",
    "running_ms",
    "first_start_ms",
    "deferred",
    "backfilled",
    "backfilled_over",
    "stop_why",
    "stop_for",
    "stop_text",
    "stop_grace_wall_ms",
    "stopping_ms",
    "turns",
)
"""Everything of a job that changes when an attempt of it starts, gets on or ends."""


def resume(job: Job, _: None, attempt: tuple[Any, ...]) -> None:
    """Put back what `attempt_of` said."""
    (
        job.status, job.attempt, job.workers, job.joining, job.leaving, job.runs, job.started_ms, job.running_ms,
        job.first_start_ms, job.deferred, job.backfilled, job.backfilled_over, job.stop_why, job.stop_for,
        job.stop_text, job.stop_grace_wall_ms, job.stopping_ms, job.turns,
    ) = attempt  # fmt: skip


class FinishedJob(NamedTuple):
    """What the cell remembers of a job that is over: enough to know it again and to answer for it."""

    id: str
    tenant: str
    digest: str
    status: JobStatus
    over_ms: int
    came_ms: int
