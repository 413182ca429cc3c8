"""When the first waiting jobs that do not fit will start: placement's own search, on the states that are to come.

The state is put forward from one end of a run to the next, by estimates. At each of these times the jobs are tried in
their order, gangs, quotas, places in the network and planned maintenance included. A job in a queue that keeps its
order is tried only when all before it that could use its nodes have their places: so no plan delays an earlier one, and
a job that would be backfilled may start sooner than planned (conservative backfill; with one job it is EASY, Lifka
1995).

The state is given back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from itertools import count

import msgspec

from fallow.services.placement.explain.queue_position import turns_of
from fallow.services.placement.fit.empty_capacity import Reach, meet, reach_of
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.queue.lines.classes import room_of
from fallow.services.placement.queue.planned_places import may_start_in
from fallow.services.placement.search.elsewhere import place_job
from fallow.services.placement.search.gang import Places, place_gang
from fallow.services.placement.search.quota_check import is_ever_allowed, limit_reached
from fallow.services.placement.search.reason_precedence import STRUCTURAL
from fallow.services.queueing.policy.estimator import Estimator
from fallow.shared.cluster.fold.allocation import release, take
from fallow.shared.cluster.fold.apply import APPLY
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.queue_order import order_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.events import effects as e
from fallow.shared.events.base import later
from fallow.shared.events.fields.values import JobSpec, NodeStatus, WorkerPlace
from fallow.shared.events.queue import PlannedStart, QueueDiscipline
from fallow.shared.events.reasons import PendingReason

CANDIDATES_EACH = 4
"""So many times as many jobs are looked at as may be planned: some of them fit now."""

STEPS_MAX = 1_000
"""So many times are looked at; where more runs end, those that follow each other closely count as one."""

TRIES_MAX = 4_000
"""So often a place is looked for in all, beside the first look."""

HORIZON_MS = 366 * 86_400_000
"""Of what would start later than that nothing is said."""

KEPT_NODES_MAX = 200
"""On so many nodes at most places are kept for all jobs together: to keep others off costs as much as each of them.
Jobs that need more have a planned start, and are protected by their wait alone.
"""

KEPT_PLACES_MAX = 2_000
KEPT_BYTES_MAX = 600_000
"""So much do all kept places take in the plan, which is one record: a node may have thousands of devices."""

_ENCODE = msgspec.json.Encoder().encode
_BEST_EFFORT, _BACKFILL = QueueDiscipline.BEST_EFFORT_FIFO, QueueDiscipline.BACKFILL

_Room = tuple[object, ...]


@dataclass(slots=True)
class _Waiting:
    """A job for which places are looked for. `before` counts those that come before it, and keep it back, and have no
    places yet; `behind` are those that it keeps back itself. At the `limit` of a tenant it keeps back only jobs below
    that.
    """

    job: Job
    queue: Queue
    room: _Room
    reach: Reach
    limit: str | None = None
    before: int = 0
    behind: list[_Waiting] = field(default_factory=list)


def plan_starts(
    state: CellState, queues: Sequence[Queue], now_ms: int, most: int, estimator: Estimator
) -> tuple[PlannedStart, ...]:
    """The planned starts of at most `most` jobs, in the order of their turns. Those that have none are not named."""
    if not most or not state.waiting:
        return ()
    turns = _in_turns(state, queues, now_ms)
    clock_ms, mark = state.clock_ms, state.checkpoint()
    try:
        waiting = _line_up_as_maintained(state, turns, now_ms, most)
        forecast = _Forecast(state, now_ms, estimator)
        forecast.go(waiting, most)
    finally:
        state.clock_ms = clock_ms
        state.rollback(mark)
    return forecast.planned(waiting)


def _in_turns(state: CellState, queues: Sequence[Queue], now_ms: int) -> Iterator[tuple[Queue, Job]]:
    """The jobs that wait for nothing but room and their turn, queue by queue in their order. Jobs whose workers come
    and go singly have no one start, and are left out; so are those that wait for another cluster.
    """
    ready: dict[str, list[Job]] = {queue.name: [] for queue in queues}
    for job in state.jobs.values():
        name = job.spec.queue or queues[0].name
        is_ready = job.status is JobStatus.QUEUED and job.not_before_ms <= now_ms and job.deferred not in STRUCTURAL
        if is_ready and job.spec.gang and name in ready:
            ready[name].append(job)
    for queue in queues:
        jobs = _as_arrays_allow(state, queue, ready[queue.name])
        for job in turns_of(state, queue, jobs, now_ms):
            yield queue, job


def _as_arrays_allow(state: CellState, queue: Queue, jobs: Sequence[Job]) -> list[Job]:
    """These jobs of a queue, but of each array only as many elements as may start beside those that run."""
    found, elements = list[Job](), dict[str, list[Job]]()
    for job in jobs:
        array = state.arrays.get(job.spec.array_of or "")
        if array is None or array.max_running is None:
            found.append(job)
        else:
            elements.setdefault(array.id, []).append(job)
    for array_id, waiting in elements.items():
        array = state.arrays[array_id]
        left = array.starts_left or 0
        found += nsmallest(left, waiting, key=lambda job: order_in(queue, job.spec, job.submit_ms, job.number))
    return found


def _line_up_as_maintained(
    state: CellState, turns: Iterable[tuple[Queue, Job]], now_ms: int, most: int
) -> list[_Waiting]:
    """The first jobs in line as if all maintenance that goes on were over: they may wait for its nodes."""
    mark = state.checkpoint()
    try:
        for node_id in sorted(state.nodes):
            node = state.nodes[node_id]
            if node.is_out_for_maintenance and node.status is not NodeStatus.LOST:
                APPLY[e.MaintenanceSet](state, e.MaintenanceSet(node=node_id), now_ms)
        return _line_up(state, _first_of(state, turns, most))
    finally:
        state.rollback(mark)


def _first_of(state: CellState, turns: Iterable[tuple[Queue, Job]], most: int) -> list[_Waiting]:
    """The first of these jobs that room may help: those that no open nodes would hold, or that quotas keep off for
    good, take no other one's place. Of those that wait below limits only half as many are looked at as of all: the
    lines of a few tenants hide no others.
    """
    found, at_limits = list[_Waiting](), 0
    known: dict[_Room, tuple[Reach, str | None]] = {}
    for queue, job in turns:
        if len(found) == CANDIDATES_EACH * most:
            break
        room: _Room = (*room_of(state, job.spec), job.spec.tenant)
        alike = known.get((*room, job.spec.preemptible))
        if alike is None:
            reach = reach_of(state, job.spec)
            reach = reach if reach and is_ever_allowed(state, job) else {}
            alike = known[*room, job.spec.preemptible] = (reach, limit_reached(state, job.spec) if reach else None)
        reach, limit = alike
        if reach and (limit is None or 2 * at_limits < CANDIDATES_EACH * most):
            at_limits += limit is not None
            found.append(_Waiting(job, queue, room, reach, limit))
    return found


def _first_left(left: list[_Waiting], most: int) -> list[_Waiting]:
    """The first of those that do not fit. Those that wait below limits are at most half of them where more others
    wait.
    """
    others = sum(one.limit is None for one in left)
    at_limits = max(most // 2, most - others)
    found = list[_Waiting]()
    for one in left:
        if len(found) < most and (one.limit is None or at_limits > 0):
            at_limits -= one.limit is not None
            found.append(one)
    return found


def _line_up(state: CellState, found: list[_Waiting]) -> list[_Waiting]:
    """These jobs, and which of them keep back which others."""
    for number, one in enumerate(found):
        above = _above(state, one.job.spec)
        for other in found[:number]:
            is_below = other.limit is None or other.limit in above
            if is_below and other.queue.discipline is not _BEST_EFFORT and meet(one.reach, other.reach):
                other.behind.append(one)
                one.before += 1
    return found


def _above(state: CellState, spec: JobSpec) -> set[str]:
    """The job's tenant, and those above it that have a quota of a type that it could get."""
    lines = (accounts(state.quotas, spec.tenant, each) for each in types_for(state, spec))
    return {spec.tenant, *(account[0] for line in lines for account in line)}


class _Forecast:
    """The state as it will be, step by step. `state` is changed, under a checkpoint."""

    def __init__(self, state: CellState, now_ms: int, estimator: Estimator) -> None:
        self._state, self._now_ms, self._estimator = state, now_ms, estimator
        self._ends: list[tuple[int, int, Job | str, tuple[WorkerPlace, ...]]] = []
        self._tries, self._numbers = TRIES_MAX, count()
        self._starts: dict[str, tuple[int, Places]] = {}
        state.clock_ms = max(now_ms, state.clock_ms)
        for job in state.jobs.values():
            if job.status in HOLDING:
                self._note_run(job)
        for node_id in sorted(state.nodes):
            window = state.nodes[node_id].maintenance_ms
            for at_ms in window or ():
                self._push(max(at_ms, now_ms), node_id, ())

    def _push(self, at_ms: int, what: Job | str, places: tuple[WorkerPlace, ...]) -> None:
        heappush(self._ends, (at_ms, next(self._numbers), what, places))

    def _note_run(self, job: Job) -> None:
        """The estimated ends of a job's workers: those of a gang end together."""
        by_end: dict[int, list[WorkerPlace]] = {}
        for place in job.workers + job.joining:
            end_ms = self._estimator.end_ms(self._state, job, place, self._now_ms)
            if end_ms is not None:
                by_end.setdefault(end_ms, []).append(place)
        for end_ms, places in by_end.items():
            self._push(end_ms, job, tuple(places))

    def go(self, waiting: list[_Waiting], most: int) -> None:
        """Find out when these start: at most so many of those that do not fit now."""
        left = _first_left(self._serve(waiting, self._now_ms), most)
        together = -(-len(self._ends) // STEPS_MAX)
        while left and self._ends and self._ends[0][0] <= self._now_ms + HORIZON_MS and self._tries > 0:
            left = self._serve(left, self._step(together))

    def _step(self, together: int) -> int:
        """Go on to the next time at which something ends, and what ends with it. The time."""
        at_ms, ended = self._ends[0][0], 0
        while self._ends and (ended < together or self._ends[0][0] == at_ms):
            at_ms, _, what, places = heappop(self._ends)
            ended += 1
            self._state.clock_ms = at_ms
            if isinstance(what, Job):
                release(self._state, what.spec.tenant, what.spec.id, places)
            else:
                self._maintain(what, at_ms)
        return at_ms

    def _maintain(self, node_id: str, at_ms: int) -> None:
        """The maintenance of a node begins or ends."""
        state, node = self._state, self._state.nodes[node_id]
        if node.status is NodeStatus.LOST or node.maintenance_ms is None:
            return
        effect: e.MaintenanceSet | e.MaintenanceBegan | None = None
        if at_ms >= node.maintenance_ms[1]:
            effect = e.MaintenanceSet(node=node_id)
        elif not node.in_maintenance:
            effect = e.MaintenanceBegan(node=node_id)
        if effect is not None:
            APPLY[type(effect)](state, effect, at_ms)

    def _serve(self, waiting: list[_Waiting], at_ms: int) -> list[_Waiting]:
        """Start those that fit at this time. Those that are left."""
        left: list[_Waiting] = []
        full: set[_Room] = set()
        for one in waiting:
            found = None
            if not one.before and one.room not in full and self._tries > 0:
                found = self._place(one)
                if isinstance(found, PendingReason):
                    full.add(one.room)
                    if found in STRUCTURAL:
                        self._let_go(one)
                        continue
            if found is None or isinstance(found, PendingReason) or not self._start(one, found, at_ms):
                left.append(one)
        return left

    def _place(self, one: _Waiting) -> Places | PendingReason:
        """Places for the job as the state is now: those that are kept for it already, if it fits there."""
        self._tries -= 1
        job, kept = one.job, self._state.reservations.get(one.job.spec.id)
        if kept is not None and kept.workers and may_start_in(self._state, job.spec, kept.workers):
            return kept.workers
        return place_job(self._state, job) if job.avoid else place_gang(self._state, job.spec)

    def _start(self, one: _Waiting, places: Places, at_ms: int) -> bool:
        spec, mark = one.job.spec, self._state.checkpoint()
        if take(self._state, spec.tenant, spec.id, places) is not None:
            self._state.rollback(mark)
            return False
        self._state.commit(mark)
        self._starts[spec.id] = (at_ms, places)
        run_ms = self._estimator.run_ms(self._state, spec)
        if run_ms is not None:
            self._push(later(at_ms, run_ms), one.job, places)
        self._let_go(one)
        return True

    @staticmethod
    def _let_go(one: _Waiting) -> None:
        for other in one.behind:
            other.before -= 1

    def planned(self, waiting: list[_Waiting]) -> tuple[PlannedStart, ...]:
        """The starts that were found, with the places that are to be kept. A job that fits now needs none, unless
        places are kept for it: until it has started they are.
        """
        found: list[PlannedStart] = []
        nodes: dict[str, None] = {}
        kept = kept_bytes = 0
        for one in waiting:
            start = self._starts.get(one.job.spec.id)
            if start is None or (start[0] <= self._now_ms and one.job.spec.id not in self._state.reservations):
                continue
            start_ms, places = start
            more = dict.fromkeys(place.node for place in places)
            is_kept = one.queue.discipline is _BACKFILL and kept + len(places) <= KEPT_PLACES_MAX
            is_kept = is_kept and len(nodes | more) <= KEPT_NODES_MAX
            size_bytes = len(_ENCODE(places)) if is_kept else 0
            if is_kept and kept_bytes + size_bytes <= KEPT_BYTES_MAX:
                nodes, kept, kept_bytes = nodes | more, kept + len(places), kept_bytes + size_bytes
            else:
                places = ()
            found.append(PlannedStart(job=one.job.spec.id, start_ms=start_ms, places=places))
        return tuple(found)
