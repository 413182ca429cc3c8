"""The queues of a cell with the jobs that wait there, in the order of their turns, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from fallow.services.placement.explain.queue_position import turns_of
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job as the newest decisions say. `place` counts from 0; None for a job that stands in no line, since
    others yield to it and room is held for it. `why` is the reason code that placement found last, None before its
    first look. `planned_start_ms` is a plan by estimates, None where there is none; `kept_nodes` are kept for the job,
    and `held_by` are the jobs that run on these nodes.
    """

    place: int | None
    job: str
    gpus_milli: int
    priority: int
    submit_ms: int
    why: str | None
    planned_start_ms: int | None
    kept_nodes: tuple[str, ...]
    held_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueListing:
    """One queue. `waiting` jobs want `gpus_milli`; `jobs` are those to which others yield, and then the first of the
    line. Beside these `held` ones, those that are `awaiting` the end of others, and elements `at_array_limit` wait
    outside the line.
    """

    queue: str
    order: str
    discipline: str
    is_in_file: bool
    waiting: int
    gpus_milli: int
    held: int
    awaiting: int
    at_array_limit: int
    jobs: tuple[WaitingJob, ...]


def listings_of(state: CellState, queues: Sequence[Queue], now_ms: int, limit: int) -> list[QueueListing]:
    """Each queue of the cell file in its order, then those that jobs wait in though the file has them no more; with
    at most `limit` jobs each.
    """
    by_queue: dict[str, list[Job]] = {queue.name: [] for queue in queues}
    first = queues[0].name
    for job in state.jobs.values():
        if job.status in _COUNTED:
            by_queue.setdefault(job.spec.queue or first, []).append(job)
    known = {queue.name: queue for queue in queues}
    return [_listing(state, known.get(name), name, jobs, now_ms, limit) for name, jobs in by_queue.items()]


_COUNTED = (JobStatus.QUEUED, JobStatus.HELD, JobStatus.AWAITING)


def _listing(
    state: CellState, queue: Queue | None, name: str, jobs: Sequence[Job], now_ms: int, limit: int
) -> QueueListing:
    queued = [job for job in jobs if job.status is JobStatus.QUEUED]
    making_room = [job for job in queued if job.spec.id in state.rooms]
    in_line = [job for job in queued if job.spec.id not in state.rooms]
    line = [job for job in in_line if may_start_one_more(state, job.spec)]
    rule = queue or Queue(name=name)
    first = islice(turns_of(state, rule, line, now_ms), limit)
    return QueueListing(
        queue=name,
        order=rule.order,
        discipline=rule.discipline,
        is_in_file=queue is not None,
        waiting=len(line) + len(making_room),
        gpus_milli=sum(job.spec.gpus_milli for job in (*making_room, *line)),
        held=sum(job.status is JobStatus.HELD for job in jobs),
        awaiting=sum(job.status is JobStatus.AWAITING for job in jobs),
        at_array_limit=len(in_line) - len(line),
        jobs=(
            *(_waiting(state, None, job) for job in making_room[:limit]),
            *(_waiting(state, place, job) for place, job in enumerate(first)),
        ),
    )


def _waiting(state: CellState, place: int | None, job: Job) -> WaitingJob:
    planned = state.reservations.get(job.spec.id)
    kept = state.rooms.get(job.spec.id) or planned
    nodes = () if kept is None else tuple(dict.fromkeys(worker.node for worker in kept.workers))
    held_by = dict.fromkeys(other for node in nodes if node in state.nodes for other in state.nodes[node].jobs)
    return WaitingJob(
        place=place,
        job=job.spec.id,
        gpus_milli=job.spec.gpus_milli,
        priority=job.spec.priority,
        submit_ms=job.submit_ms,
        why=job.deferred,
        planned_start_ms=None if planned is None else planned.start_ms,
        kept_nodes=nodes,
        held_by=tuple(held_by),
    )
