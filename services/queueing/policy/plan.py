"""The next jobs in each queue of a cell, from one look at its whole state.

It costs about a microsecond for each waiting job, so it is made now and then: no service waits for it. It goes by the
order that placement's walk uses, so it is right as long as what is next fits; a job that does not fit is passed or
waited for as the discipline of its queue says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from fallow.services.placement.explain.queue_position import turns_of
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import WAITING, Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.queue import QueuePlan

NEXT_MAX = 100
"""So many jobs of a queue are named."""

JOBS_PER_PART = 4_000
"""A tenant and an id have at most 192 characters together, so a part stays below 800 kB."""


def plan_of(state: CellState, queues: Sequence[Queue], now_ms: int, most: int = NEXT_MAX) -> list[QueuePlan]:
    """The queues in which jobs wait, in the order of the cell file, behind them those that the file no longer has by
    name. Of each the first `most` jobs.
    """
    waiting: dict[str, list[Job]] = {queue.name: [] for queue in queues}
    for job in state.jobs.values():
        if job.status in WAITING:
            waiting.setdefault(job.spec.queue or queues[0].name, []).append(job)
    known = {queue.name: queue for queue in queues}
    names = [*known, *sorted(waiting.keys() - known.keys())]
    return [
        _plan(state, known.get(name) or Queue.model_construct(name=name), waiting[name], now_ms, most)
        for name in names
        if waiting[name]
    ]


def _plan(state: CellState, queue: Queue, jobs: list[Job], now_ms: int, most: int) -> QueuePlan:
    ready = [job for job in jobs if job.status is JobStatus.QUEUED and job.not_before_ms <= now_ms]
    room, beyond = _below_limits(state, ready)
    first = _within(turns_of(state, queue, ready, now_ms), room)
    return QueuePlan(
        queue=queue.name,
        waiting=len(jobs),
        ready=len(ready) - beyond,
        next=tuple([job.id for job in islice(first, most)]),
    )


def _below_limits(state: CellState, ready: Iterable[Job]) -> tuple[dict[str, int], int]:
    """How many elements of each array with a limit may start now, and how many of these jobs must wait for others of
    their array.
    """
    count: dict[str, int] = {}
    for job in ready:
        if job.spec.array_of is not None and job.spec.array_max_running is not None:
            count[job.spec.array_of] = count.get(job.spec.array_of, 0) + 1
    room = {array: _room(state, array) for array in count}
    return room, sum(max(0, jobs - room[array]) for array, jobs in count.items())


def _room(state: CellState, array_id: str) -> int:
    array = state.arrays.get(array_id)
    return 0 if array is None else array.starts_left or 0


def _within(turns: Iterator[Job], room: dict[str, int]) -> Iterator[Job]:
    """The jobs whose turn it is, without the elements that find no place below the limit of their array."""
    for job in turns:
        array = job.spec.array_of
        if array is None or array not in room:
            yield job
        elif room[array]:
            room[array] -= 1
            yield job


def in_parts(plans: Sequence[QueuePlan]) -> list[tuple[QueuePlan, ...]]:
    """These queues, cut where a record is full; one part at least."""
    parts: list[tuple[QueuePlan, ...]] = []
    part: list[QueuePlan] = []
    jobs = 0
    for plan in plans:
        if part and jobs + 1 + len(plan.next) > JOBS_PER_PART:
            parts.append(tuple(part))
            part, jobs = [], 0
        part.append(plan)
        jobs += 1 + len(plan.next)
    return [*parts, tuple(part)]
