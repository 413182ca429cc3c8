"""Who of a queue is ahead of a job: the order that a walk would use now, if each of them found room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from services.placement.policy.fair_share import Shares
from services.placement.policy.tournament import Tournament
from shared.cluster.config import Queue
from shared.cluster.gpu_types import types_for
from shared.cluster.job import Job, JobStatus
from shared.cluster.queue_order import Order, order_in
from shared.cluster.quota import Usage, accounts
from shared.cluster.state import CellState
from shared.events.queue import QueueOrder
from shared.events.values import JobSpec


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting job and its place among those of its queue, or of its tenant there."""

    order: Order
    job: Job


def jobs_before(state: CellState, job: Job, queue: Queue, now_ms: int) -> list[Job]:
    """The jobs that a walk comes to before this one, in their order, whether or not they fit; held ones left out.

    In fair-share order each of them counts as started before the next one is chosen: so it tells whose turn it would
    be, if there were room for all.
    """
    line = [
        Waiting(order_in(queue, other.spec, other.submit_ms, other.number), other)
        for other in state.jobs.values()
        if other is job or (other.status is JobStatus.QUEUED and other.spec.queue == job.spec.queue)
    ]
    line.sort(key=lambda waiting: waiting.order)
    turns = _turns(state, line, now_ms) if queue.order is QueueOrder.FAIR_SHARE else (waiting.job for waiting in line)
    found: list[Job] = []
    for other in turns:
        if other is job:
            break
        found.append(other)
    return found


def _turns(state: CellState, line: list[Waiting], now_ms: int) -> Iterator[Job]:
    by_tenant: dict[str, list[Job]] = {}
    for waiting in reversed(line):
        by_tenant.setdefault(waiting.job.spec.tenant, []).append(waiting.job)
    usage = dict(state.usage)
    turns = Tournament(Shares(state, now_ms, usage), list(by_tenant))
    while (tenant := turns.first()) is not None:
        if not by_tenant[tenant]:
            turns.leave()
            continue
        job = by_tenant[tenant].pop()
        yield job
        _charge(state, usage, job.spec)
        turns.served()


def _charge(state: CellState, usage: Usage, spec: JobSpec) -> None:
    """What the job would hold, in the first of its pools that has nodes."""
    gpu_type = next(iter(types_for(state, spec)), "")
    for account in accounts(state.quotas, spec.tenant, gpu_type):
        usage[account] = usage.get(account, 0) + spec.gpus_milli
