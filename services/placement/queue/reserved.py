"""The nodes that are kept for planned starts, as one walk goes by them: who may use them until then.

A job behind one that has a reservation, in its queue or in one that is walked later, takes of its nodes only what it
gives back before the planned start, by its estimate (EASY). One that has a reservation itself leaves the nodes of all
others alone in the same way, before and behind it; of the nodes that are kept for it, those of plans later than its
own do not count. So no start out of plan spoils another plan. Nothing is kept from an owner for a job that would borrow
from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.services.placement.owners.owners_first import fits_in, kept_from_owner, waits_for_owners
from fallow.services.placement.search.quota_check import waits_by_types
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.queue_order import Order, order_in
from fallow.shared.cluster.model.run_time import run_estimate_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.effects import ReservationSet
from fallow.shared.events.fields.values import WorkerPlace
from fallow.shared.events.queue import QueueOrder
from fallow.shared.events.reasons import PendingReason


@dataclass(frozen=True, slots=True)
class Kept:
    """One reservation: whose, where it stands in its queue, the nodes, and when it is planned to start."""

    job: Job
    queue: str
    order: Order
    reach: Reach
    start_ms: int


Off = tuple[Reach, Kept | None]
"""Nodes that are kept from a job, and the first of those for which they are."""


class Reserved:
    """The reservations with places. They count in a queue from the place of their job on, and in all queues behind."""

    __slots__ = ("_all", "_earlier", "_known", "_now_ms", "_orders", "_own", "_starts", "_state", "changes_ms")

    def __init__(self, state: CellState, queue_of: dict[str, Queue], now_ms: int) -> None:
        """`queue_of` is the queue of each job that has a reservation."""
        self._state, self._now_ms = state, now_ms
        self._all = [
            _kept(state, state.jobs[job_id], queue, now_ms)
            for job_id, queue in queue_of.items()
            if state.reservations[job_id].workers
        ]
        self._starts = sorted(kept.start_ms for kept in self._all)
        self._earlier: list[Kept] = []
        self._own: list[Kept] = []
        self._orders: list[Order] = []
        self._known: dict[tuple[str, int, int], Off] = {}
        self.changes_ms: int | None = None
        """When more is kept from one that was asked about, since it would not be over in time any more."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._all)

    def enter(self, queue: Queue) -> None:
        """The walk comes to this queue, and is over with the one before."""
        self._earlier += self._own
        self._own = sorted([kept for kept in self._all if kept.queue == queue.name], key=lambda kept: kept.order)
        # By shares the order is another one with each start: there all others stand behind.
        is_fair = queue.order is QueueOrder.FAIR_SHARE
        self._orders = [] if is_fair else [kept.order for kept in self._own]
        self._known = {}

    def started(self, job: Job) -> bool:
        """Nothing is kept for this job any more. Whether something was."""
        was_kept = any(kept.job is job for kept in self._all)
        if was_kept:
            self._all = [kept for kept in self._all if kept.job is not job]
            self._earlier = [kept for kept in self._earlier if kept.job is not job]
            self._own = [kept for kept in self._own if kept.job is not job]
            self._orders = [kept.order for kept in self._own] if self._orders else []
            self._starts = sorted(kept.start_ms for kept in self._all)
            self._known = {}
        return was_kept

    def kept_from(self, job: Job, order: Order, *, is_before_turns: bool = False) -> Off:
        """The nodes on which this job of the queue, which stands in this place, may not start now. One that
        `is_before_turns` stands before all others of its queue: what is planned there waits for it, not the reverse.
        """
        late, own = self._late(job), self._state.reservations.get(job.spec.id)
        if own is not None and own.workers and not is_before_turns:
            return self._kept_from_planned(job, own)
        before = [] if is_before_turns else self._before(job, order)
        owned = fits_in(self._state, in_line(job))
        tenant = "" if self._orders else job.spec.tenant
        known = None if owned else self._known.get((tenant, len(before), late))
        if known is None:
            known = self._union(self._earlier + before, job, owned)
            if not owned:
                self._known[tenant, len(before), late] = known
        return known

    def _late(self, job: Job) -> int:
        """How many of all are planned to start before the job would be over, which tells which these are."""
        run_ms = run_estimate_ms(self._state, job.spec)
        if run_ms is None:
            return len(self._starts)
        late = bisect_left(self._starts, self._now_ms + run_ms)
        if late < len(self._starts):
            changes_ms = self._starts[late] - run_ms + 1
            self.changes_ms = changes_ms if self.changes_ms is None else min(self.changes_ms, changes_ms)
        return late

    def _before(self, job: Job, order: Order) -> list[Kept]:
        """Those of the queue behind which a job in this place stands. By shares it stands behind all of other tenants,
        whose turns may come before its own, and behind none of its own tenant's that come after it: these wait for it.
        """
        if self._orders:
            return self._own[: bisect_left(self._orders, order)]
        tenant = job.spec.tenant
        return [kept for kept in self._own if kept.job.spec.tenant != tenant or kept.order < order]

    def _kept_from_planned(self, job: Job, own: ReservationSet) -> Off:
        """What is kept from a job that has a reservation: on its own nodes those that are planned later do not count,
        also where it keeps these from no job any more. Else two that are planned one behind the other would both wait.
        """
        mine = next((kept for kept in self._all if kept.job is job), None)
        if mine is None:
            return {}, None
        later, earlier = list[Kept](), list[Kept]()
        for kept in self._all:
            if kept is not mine:
                is_later = (kept.start_ms, kept.order) > (own.start_ms, mine.order)
                (later if is_later else earlier).append(kept)
        owned, own_nodes = fits_in(self._state, in_line(job)), reach_of_places(self._state, own.workers)
        (found, first), (more, other) = self._union(earlier, job, owned), self._union(later, job, owned)
        for name, mask in more.items():
            found[name] = found.get(name, 0) | mask & ~own_nodes.get(name, 0)
        return found, first or other

    def _union(self, kept: list[Kept], job: Job, owned: Mapping[str, Account]) -> Off:
        found, first = dict[str, int](), None
        for each in kept:
            if _ends_before(self._state, job, each.start_ms, self._now_ms):
                continue
            reach = kept_from_owner(self._state, owned, each.job.spec, each.reach) if owned else each.reach
            first = first or (each if reach else None)
            for name, mask in reach.items():
                found[name] = found.get(name, 0) | mask
        return found, first


def _ends_before(state: CellState, job: Job, start_ms: int, now_ms: int) -> bool:
    """Whether the job, started now, would be over by then."""
    run_ms = run_estimate_ms(state, job.spec)
    return run_ms is not None and now_ms + run_ms <= start_ms


def _is_late_at_limit(state: CellState, job: Job, now_ms: int) -> bool:
    """Whether a job that only a limit keeps, or a head before it, which may be at that limit, has not started by its
    first planned start: what runs below the limit ends at an unknown time, and no room would help the job till then.
    """
    first_ms = state.reservations[job.spec.id].first_ms
    if first_ms is None or now_ms < first_ms or not state.quotas:
        return False
    waits = waits_by_types(state, job.spec)
    is_at_limit = bool(waits.under) and not waits.room and not waits.to_all
    return is_at_limit or job.deferred is PendingReason.BEHIND_HEAD


def _kept(state: CellState, job: Job, queue: Queue, now_ms: int) -> Kept:
    reservation = state.reservations[job.spec.id]
    order = order_in(queue, job.spec, job.submit_ms, job.number)
    # What waits for owners alone keeps nothing: else another one could wait for it and keep the owners off.
    keeps = not waits_for_owners(state, job.spec, reservation.workers) and not _is_late_at_limit(state, job, now_ms)
    reach = reach_of_places(state, reservation.workers) if keeps else {}
    return Kept(job, queue.name, order, reach, reservation.start_ms)


def reach_of_places(state: CellState, places: tuple[WorkerPlace, ...]) -> Reach:
    """The nodes of these places."""
    found: Reach = {}
    for node_id in {place.node: None for place in places}:
        node = state.nodes.get(node_id)
        pool = None if node is None else state.pools.get(node.pool)
        if node is not None and pool is not None:
            found[node.pool] = found.get(node.pool, 0) | 1 << pool.number(node_id)
    return found
