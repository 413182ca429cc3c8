"""Planned starts as queueing proposes them: looked at on the newest state, put in force, and ended.

A proposal says from which version it was planned. That is evidence and no condition: what counts is whether the plan
still holds. A plan is a whole one, so what it does not name any more is not planned any more; an older plan than the
newest that was heard says nothing. One that is in force lapses where nothing confirms it for long.
"""

from __future__ import annotations

from collections.abc import Callable

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.services.placement.queue.planned_places import are_places_of, is_in_service_by
from fallow.shared.cluster.capacity.gang_bytes import bytes_of, is_too_large
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.node import mask_of
from fallow.shared.cluster.model.run_time import end_estimate_ms, expected_run_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import LARGEST_INTEGER, later
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.queue import PlannedStart, StartsPlanned
from fallow.shared.events.reasons import ClearReason

LATER_PERCENT, LATER_LEAST_MS = 10, 1_000
"""A start that moves back by less than so much of the time until then is not written again: estimates that are outlived
move it a little with each plan.
"""

CONFIRMED_WALL_MS_LEAST = 5_000
"""A plan holds for so long at least, in wall time: where cell time runs faster, plans come no more often for that."""


class Reservations:
    """What this writer does with plans. `newest` is the version of the newest one that it looked at."""

    def __init__(self, speed: float, *, hears_plans: bool = True, clock_bound_ms: int = LARGEST_INTEGER) -> None:
        """`clock_bound_ms` is how far ahead, in cell time, the clock of a plan may be."""
        self._least_ms = round(CONFIRMED_WALL_MS_LEAST * speed)
        self._hears_plans, self._clock_bound_ms = hears_plans, clock_bound_ms
        self._plan: StartsPlanned | None = None
        self.newest = 0
        self.plans_passed_over = 0
        """How many plans were made by a clock that is too far ahead."""
        self.plan_ahead_ms = 0
        """By how much the newest plan was too far ahead; 0 where it was not."""

    def begin(self) -> None:
        """Plans are heard anew: an earlier one says nothing of the clock that queueing has now."""
        self._plan, self.plan_ahead_ms = None, 0

    def hear(self, plan: StartsPlanned) -> None:
        """The newest plan is all that counts."""
        if self._hears_plans and (self._plan is None or plan.version >= self._plan.version):
            self._plan = plan

    def drop_plan(self) -> None:
        """Forget the plan that waits: queueing makes another one."""
        self._plan = None

    @property
    def has_plan(self) -> bool:
        """Whether a plan waits to be put in force."""
        return self._plan is not None

    def forget(self) -> None:
        """Another process may have written: its plans are heard anew."""
        self.newest = 0

    def take_newest(self, decision: DecisionBuilder, backfills: Callable[[Job], bool]) -> bool:
        """Put the plan that waits in force, unless its clock is too far ahead. Whether anything of it was looked at."""
        plan = self._plan
        if plan is not None and plan.at_ms > later(decision.now_ms, self._clock_bound_ms):
            self.plans_passed_over += 1
            self.plan_ahead_ms = plan.at_ms - decision.now_ms
            plan = self._plan = None
        if plan is None or decision.is_full:
            return False
        self.plan_ahead_ms = 0
        if self.take(decision, plan, backfills):
            self._plan = None
        return True

    def take(self, decision: DecisionBuilder, plan: StartsPlanned, backfills: Callable[[Job], bool]) -> bool:
        """Put a plan in force, as far as it holds. `backfills`: whether the job is in a queue that backfills. Whether
        the record had room for all of it; else it ends here, and the next one goes on with the same plan.
        """
        state = decision.state
        if plan.version < self.newest or plan.version > state.version:
            return True
        self.newest = plan.version
        named = {start.job: start for start in plan.starts[: state.policy.reservations_max]}
        for job_id in [each for each in state.reservations if each not in named]:
            if state.reservations[job_id].version <= plan.version:
                if decision.is_full:
                    return False
                decision.emit(e.ReservationCleared(job=job_id, reason=ClearReason.REPLACED))
        taken = _Taken(state)
        for start in named.values():
            why = self._refusal(state, plan, start, taken, backfills)
            if why is None:
                taken.add(start)
                if not self._put(decision, plan, start):
                    decision.is_closed = True
                    return False
        return True

    @staticmethod
    def _refusal(
        state: CellState, plan: StartsPlanned, start: PlannedStart, taken: _Taken, backfills: Callable[[Job], bool]
    ) -> str | None:
        """Why this planned start does not hold on the newest state, or None."""
        job = state.jobs.get(start.job)
        if job is None or job.status is not JobStatus.QUEUED:
            return "the job does not wait"
        if not start.places:
            return None
        if not backfills(job):
            return "its queue keeps no places"
        if not are_places_of(state, job.spec, start.places, start.start_ms):
            return "the places are not what the job asks for, or a node is gone or out of service"
        if is_too_large(job.spec, start.places):
            return "no record can hold its places"
        for place in start.places:
            why = _held_longer(state, job, place, plan, start.start_ms)
            if why is not None:
                return why
        return taken.refusal(job, start)

    def _put(self, decision: DecisionBuilder, plan: StartsPlanned, start: PlannedStart) -> bool:
        """Set the reservation, unless the one in force says the same and lasts. Whether the record had room for it."""
        state, now_ms = decision.state, decision.now_ms
        before = state.reservations.get(start.job)
        ttl_ms = max(state.policy.reservation_ttl_ms, self._least_ms)
        if before is not None and _says_the_same(before, start, now_ms) and _left_ms(before, now_ms) > ttl_ms // 2:
            return True
        if decision.is_full or not decision.fits(bytes_of(start.places)):
            return False
        first_ms = min(state.first_plans.get(start.job, start.start_ms), start.start_ms)
        decision.emit(
            e.ReservationSet(
                job=start.job,
                workers=start.places,
                start_ms=start.start_ms,
                first_ms=first_ms,
                until_ms=later(now_ms, ttl_ms),
                version=plan.version,
            )
        )
        return True


def settle(decision: DecisionBuilder, backfills: Callable[[Job], bool]) -> None:
    """End reservations of jobs that do not wait any more, of nodes that are gone, those that nothing confirmed, and
    where the cell plans no starts any more or the job's queue keeps no places.
    """
    state = decision.state
    for job_id in list(state.reservations):
        reason = _over(state, job_id, decision.now_ms, backfills)
        if reason is not None:
            if decision.is_closed:
                return
            decision.emit(e.ReservationCleared(job=job_id, reason=reason))


def next_lapse_ms(state: CellState) -> int | None:
    """When the next reservation lapses."""
    return min((each.until_ms for each in state.reservations.values() if each.until_ms is not None), default=None)


def _over(state: CellState, job_id: str, now_ms: int, backfills: Callable[[Job], bool]) -> ClearReason | None:
    job, kept = state.jobs[job_id], state.reservations[job_id]
    if job.status in HOLDING:
        return ClearReason.STARTED
    if job.status is not JobStatus.QUEUED:
        return ClearReason.HELD
    if kept.until_ms is not None and kept.until_ms <= now_ms:
        return ClearReason.LAPSED
    if not state.policy.reservations_max or (kept.workers and not backfills(job)):
        return ClearReason.REPLACED
    for node_id in {place.node: None for place in kept.workers}:
        node = state.nodes.get(node_id)
        if node is None or not is_in_service_by(node, kept.start_ms) or node.offered is not None:
            return ClearReason.NODES_GONE
    return None


def _left_ms(before: e.ReservationSet, now_ms: int) -> int:
    """For how long it lasts without being confirmed."""
    return 0 if before.until_ms is None else before.until_ms - now_ms


def _says_the_same(before: e.ReservationSet, start: PlannedStart, now_ms: int) -> bool:
    """Whether a plan says what is in force: the same places, and a start that is not earlier, and not much later."""
    if before.workers != start.places or start.start_ms < before.start_ms:
        return False
    later_ms = start.start_ms - before.start_ms
    return later_ms <= max(LATER_LEAST_MS, (start.start_ms - now_ms) * LATER_PERCENT // 100)


def _held_longer(state: CellState, job: Job, place: WorkerPlace, plan: StartsPlanned, start_ms: int) -> str | None:
    """Whether another job holds a planned place beyond the planned start, by estimates as the plan could know them."""
    node = state.nodes[place.node]
    wanted = mask_of(place.devices)
    if not wanted & (node.held | mask_of(tuple(node.shares))):
        return None
    for other_id in sorted(node.jobs):
        other = state.jobs[other_id]
        for theirs in other.workers + other.joining:
            if theirs.node != place.node or not wanted & mask_of(theirs.devices):
                continue
            if place.gpu_milli < GPU and theirs.gpu_milli < GPU:
                continue  # they may share the device: whether they do, the start will tell
            end_ms = end_estimate_ms(state, other, theirs, plan.at_ms)
            if end_ms is None or end_ms > start_ms:
                return f"job {other_id} holds node {place.node} beyond the planned start"
    return None


class _Taken:
    """What the reservations of a plan that hold keep for their jobs, device by device."""

    def __init__(self, state: CellState) -> None:
        self._state = state
        self._kept: dict[str, list[tuple[int, int, int | None, str]]] = {}

    def add(self, start: PlannedStart) -> None:
        """This one is in force."""
        run_ms = expected_run_ms(self._state, self._state.jobs[start.job].spec)
        end_ms = None if run_ms is None else start.start_ms + run_ms
        for place in start.places:
            kept = self._kept.setdefault(place.node, [])
            kept.append((mask_of(place.devices), start.start_ms, end_ms, start.job))

    def refusal(self, job: Job, start: PlannedStart) -> str | None:
        """Which other one this one would contradict: both need a device at one time."""
        if job.spec.resources.gpu_milli < GPU:
            return None
        run_ms = expected_run_ms(self._state, job.spec)
        for place in start.places:
            wanted = mask_of(place.devices)
            for mask, begin_ms, end_ms, other in self._kept.get(place.node, ()):
                is_before = run_ms is not None and start.start_ms + run_ms <= begin_ms
                if wanted & mask and not is_before and (end_ms is None or end_ms > start.start_ms):
                    return f"job {other} has node {place.node} then"
        return None
