"""Whatever happens, each line is what a plain sorted list would be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import tests.hypothesis_profile  # noqa: F401 - sets how examples are searched
from services.queueing.policy.classes import class_of
from shared.cluster.job import JobStatus
from shared.events import effects as e
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.value import replace
from shared.events.values import JobSpec
from tests.queueing.cell import Cell, spec

QUEUES = ("default", "strict")
IDS = [f"job-{number}" for number in range(8)]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ("admit", "enqueue", "start", "requeue", "sleep", "hold", "release", "update", "cancel", "wake")
        ),
        st.sampled_from(IDS),
        st.integers(0, 3),
    ),
    min_size=15,
    max_size=60,
)


def spec_like(job: str, kind: int) -> JobSpec:
    """A job of one of a few classes."""
    return spec(job, priority=kind // 3, workers=1 + kind // 2, queue=QUEUES[int(job[-1]) // 5])


def do(cell: Cell, what: str, job_id: str, number: int) -> None:
    """One operation, where it makes sense."""
    job = cell.state.jobs.get(job_id)
    status = None if job is None else job.status
    match what, status:
        case "admit", None:
            cell.admit(spec_like(job_id, number), submit_ms=number)
        case "enqueue", None if job_id not in cell.state.over:
            cell.enqueue(spec_like(job_id, number), submit_ms=number)
        case "start", JobStatus.QUEUED if job is not None and job.not_before_ms <= cell.now_ms:
            cell.start(job_id)
        case (("requeue" | "sleep"), JobStatus.STARTING):
            cell.requeue(job_id, cell.now_ms + (number if what == "sleep" else 0))
        case "hold", JobStatus.QUEUED:
            cell.decide(e.JobHeld(job=job_id))
        case "release", JobStatus.HELD:
            cell.decide(e.JobReleased(job=job_id))
        case "update", JobStatus.QUEUED | JobStatus.HELD | JobStatus.STARTING if job is not None:
            cell.decide(e.JobUpdated(spec=replace(job.spec, priority=number)))
        case "cancel", JobStatus.QUEUED | JobStatus.HELD:
            cell.decide(e.JobCancelled(job=job_id))
        case "wake", _:
            cell.now_ms += number
            cell.service.wake(cell.now_ms)


def naive(cell: Cell, queue: str) -> list[str]:
    """The jobs that wait in a queue, sorted."""
    waiting = [
        job
        for job in cell.state.jobs.values()
        if job.spec.queue == queue and job.status is JobStatus.QUEUED and job.not_before_ms <= cell.now_ms
    ]
    return [job.id for job in sorted(waiting, key=lambda job: job.queue_order)]


def shown(cell: Cell, queue: str, most: int) -> tuple[list[str], list[int]]:
    """What a window shows of a queue, by the words of its definition: the first few of each class, and the cuts."""
    jobs, seen, cuts = [], dict[object, int](), []
    line = naive(cell, queue)
    key = {job: () if queue == "strict" else class_of(cell.state.jobs[job].spec) for job in line}
    for job in line:
        seen[key[job]] = seen.get(key[job], 0) + 1
        if seen[key[job]] <= most:
            jobs.append(job)
            if seen[key[job]] == most and sum(key[other] == key[job] for other in line) > most:
                cuts.append(len(jobs) - 1)
    return jobs, cuts


def still(heads: list[QueueHead], now: list[QueueHead]) -> list[tuple[list[str], list[str]]]:
    """What an older window says without the jobs that wait no longer, which a walk passes over: jobs and cuts."""
    waiting = [job for head in now for job in head.jobs]
    left = [
        (
            [job for job in head.jobs if job in waiting],
            [head.jobs[cut] for cut in head.cuts if head.jobs[cut] in waiting],
        )
        for head in heads
    ]
    return [(jobs, cuts) for jobs, cuts in left if jobs]


@given(OPERATIONS, st.integers(1, 3))
def test_the_lines_are_what_a_plain_sorted_list_would_be(operations: list[tuple[str, str, int]], most: int) -> None:
    cell = Cell(most)
    last: list[QueueHead] = cell.heads()
    for what, job_id, number in operations:
        do(cell, what, job_id, number)
        is_due, now = cell.is_due(), cell.heads()
        if not is_due:
            assert still(last, now) == still(now, now), "an edge was lost"
        last = now
    cell.read += 1
    cell.decide()
    heads = {head.queue: head for head in cell.heads()}
    for queue in QUEUES:
        head = heads.get(queue, QueueHead(queue=queue, discipline=QueueDiscipline.STRICT_FIFO, jobs=()))
        assert (list(head.jobs), list(head.cuts)) == shown(cell, queue, most)
        assert head.waiting == len(naive(cell, queue))
