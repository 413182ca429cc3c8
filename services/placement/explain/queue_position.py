"""Who of a queue is ahead of a job: the order that a walk would use now, if each of them found room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop
from itertools import takewhile

from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.queue.fair_share import Shares
from fallow.services.placement.queue.fair_share_heap import FairShareHeap, came_of
from fallow.services.placement.queue.lines.classes import room_of
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.services.placement.search.reason_precedence import STRUCTURAL
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import order_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Usage, accounts
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.queue import QueueOrder


def jobs_before(state: CellState, job: Job, queue: Queue, now_ms: int) -> list[Job]:
    """The jobs that a walk comes to before this one, in their order, whether or not they fit; left out are held ones,
    and elements whose array may have no more at once.
    """
    waiting = (other for other in state.jobs.values() if other.status is JobStatus.QUEUED)
    of_queue = [other for other in waiting if other is not job and other.spec.queue == job.spec.queue]
    line = [job, *(other for other in of_queue if may_start_one_more(state, other.spec))]
    return list(takewhile(lambda other: other is not job, turns_of(state, queue, line, now_ms)))


def turns_of(state: CellState, queue: Queue, jobs: Iterable[Job], now_ms: int) -> Iterator[Job]:
    """These jobs of one queue in the order of their turns. To ask for the first few costs little more than to look at
    each once.

    In fair-share order each of them counts as started before the next one is chosen: so it tells whose turn it would
    be, if there were room for all. One that may never start counts for nothing: no walk ever starts it.
    """
    if queue.order is not QueueOrder.FAIR_SHARE:
        return _in_order(queue, jobs)
    by_tenant: dict[str, list[Job]] = {}
    for job in jobs:
        by_tenant.setdefault(job.spec.tenant, []).append(job)
    return _by_shares(state, {tenant: _in_order(queue, theirs) for tenant, theirs in by_tenant.items()}, now_ms)


def _in_order(queue: Queue, jobs: Iterable[Job]) -> Iterator[Job]:
    """The oldest of the highest priority first, as the queue has it."""
    heap = [(order_in(queue, job.spec, job.submit_ms, job.number), job) for job in jobs]
    heapify(heap)  # no two orders are equal, so jobs are never compared
    while heap:
        yield heappop(heap)[1]


def _by_shares(state: CellState, lines: Mapping[str, Iterator[Job]], now_ms: int) -> Iterator[Job]:
    usage = dict(state.usage)
    firsts = {tenant: next(line, None) for tenant, line in lines.items()}
    came = {tenant: came_of(job) for tenant, job in firsts.items() if job is not None}
    turns, able = FairShareHeap(Shares(state, now_ms, usage), came), _Able(state)
    while (tenant := turns.first()) is not None:
        job = firsts[tenant]
        assert job is not None, "else it has left"
        yield job
        if able.may_start(job):
            _charge(state, usage, job.spec)
        firsts[tenant] = after = next(lines[tenant], None)
        if after is None:
            turns.leave()
        else:
            came[tenant] = came_of(after)
            turns.moved()


class _Able:
    """Which jobs may start one day: not those that no node could take, nor those that their quotas keep off for good.
    Jobs of one class are looked at once.
    """

    def __init__(self, state: CellState) -> None:
        self._state = state
        self._known: dict[tuple[object, ...], bool] = {}

    def may_start(self, job: Job) -> bool:
        """Whether the job may."""
        if job.deferred in STRUCTURAL:
            return False
        if not self._state.quotas:
            return True
        key = (*room_of(self._state, job.spec), job.spec.tenant, job.spec.preemptible)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = is_ever_allowed(self._state, job)
        return known


def _charge(state: CellState, usage: Usage, spec: JobSpec) -> None:
    """What the job would hold, in the first of its pools that has nodes."""
    gpu_type = next(iter(types_for(state, spec)), "")
    for account in accounts(state.quotas, spec.tenant, gpu_type):
        usage[account] = usage.get(account, 0) + spec.gpus_milli
