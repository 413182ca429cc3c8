"""The answers awaited, by wall time, from single workers: that they have started, that they have left.

A worker that does not start in its time costs only itself: it is told to leave. One that does not leave in its time
keeps its place, for it may still run; the audit trail tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fallow.services.placement.decision.decision import STEPS_OF_AN_EFFECT, DecisionBuilder
from fallow.services.placement.lifecycle.runs.workers import leave, put_off
from fallow.shared.cluster.fold.due import DueHeap
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus, WorkerPlace

_GOES_ON = (JobStatus.STARTING, JobStatus.RUNNING)


class _Due(NamedTuple):
    """When the workers that entered in a turn must have started, or (with ranks) those that leave must have left."""

    at_ms: int
    job: str
    attempt: int
    turn: int
    ranks: tuple[int, ...] = ()


class WorkerTimeouts:
    """Due times of one cell. An entry that has become pointless does nothing when it is due, and is let go of before
    when there are many.
    """

    def __init__(self) -> None:
        self._due = DueHeap[_Due]()
        self._done: list[_Due] = []

    def begin(self) -> None:
        """A decision begins: what was done before is done."""
        self._done.clear()

    def put_back(self) -> None:
        """The decision in the making cannot be written: what was done since `begin` is due again."""
        for due in self._done:
            self._due.put_back(due)
        self._done.clear()

    def from_state(self, state: CellState, wall_ms: int, waited_ms: Callable[[CellState, int | None], int]) -> None:
        """Begin anew for a state of which others may have written; what is awaited still is due when it was.
        `waited_ms` tells, as far as the log knows, how long ago a cell time is.
        """
        self.put_back()
        lives = _lives_in(state)
        kept = [due for due in self._due.entries if lives(due)]
        self._due = DueHeap()
        for due in kept:
            self._due.push(due, lives)
        starts = {(due.job, due.turn) for due in kept if not due.ranks}
        leaves = {(due.job, rank) for due in kept for rank in due.ranks}
        for job_id in sorted(state.independent_jobs):
            job = state.jobs[job_id]
            entered = {place.turn: place.since_ms for place in job.workers if _is_starting(job, place)}
            for turn in sorted(entered):
                if (job_id, turn) not in starts:
                    over_ms = waited_ms(state, entered[turn] if turn else job.started_ms)
                    self._await_start(state, job, turn, wall_ms - min(over_ms, state.policy.start_timeout_wall_ms))
            left = tuple(rank for rank in job.leaving if (job_id, rank) not in leaves)
            self._await_leave(state, job, left, wall_ms)

    def note(self, state: CellState, effect: e.JobStarted | e.JobResizing, wall_ms: int) -> None:
        """Workers enter or leave by this effect, which is in force."""
        job = state.jobs.get(effect.job)
        if job is None or job.attempt != effect.attempt or job.id not in state.independent_jobs:
            return
        entered = effect.workers if isinstance(effect, e.JobStarted) else effect.add
        if entered:
            self._await_start(state, job, entered[0].turn, wall_ms)
        if isinstance(effect, e.JobResizing):
            self._await_leave(state, job, effect.remove, wall_ms)

    def _await_start(self, state: CellState, job: Job, turn: int, wall_ms: int) -> None:
        self._due.push(_Due(wall_ms + state.policy.start_timeout_wall_ms, job.id, job.attempt, turn), _lives_in(state))

    def _await_leave(self, state: CellState, job: Job, ranks: tuple[int, ...], wall_ms: int) -> None:
        if ranks:
            wait_ms = state.policy.stop_grace_wall_ms + state.policy.lease_margin_wall_ms
            self._due.push(_Due(wall_ms + wait_ms, job.id, job.attempt, job.turns, ranks), _lives_in(state))

    def act(self, decision: DecisionBuilder, heard_ms: int) -> bool:
        """Do what is due, as far as the record has room and the turn has steps. `heard_ms`, and what is returned, as in
        `Deadlines.act`.
        """
        while self._due.is_due(heard_ms) and decision.does_what_is_due:
            due = self._due.pop()
            self._done.append(due)
            known = len(decision.effects)
            decision.due_steps += 1 + _act(decision, due)
            decision.due_steps += STEPS_OF_AN_EFFECT * (len(decision.effects) - known)
        return self._due.is_due(heard_ms)


def _act(decision: DecisionBuilder, due: _Due) -> int:
    """Do what is due of these workers. How many workers were looked at for it."""
    job = decision.state.jobs.get(due.job)
    if job is None or job.attempt != due.attempt or job.status not in _GOES_ON:
        return 0
    if due.ranks:
        if not frozenset(job.leaving).isdisjoint(due.ranks):
            decision.emit(e.AttemptTimedOut(job=job.id, attempt=job.attempt, what="stop"))
        return len(job.leaving) + len(due.ranks)
    workers = len(job.workers)
    # The attempt timer covers jobs with no started worker.
    if job.status is JobStatus.RUNNING:
        _give_up_late(decision, job, due.turn)
    return workers


def _is_starting(job: Job, place: WorkerPlace) -> bool:
    return job.runs[str(place.rank)] is RunStatus.STARTING


def _lives_in(state: CellState) -> Callable[[_Due], bool]:
    """Tells of an entry whether one of its workers is still awaited, as things stand in this state."""
    awaited: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def lives(due: _Due) -> bool:
        job = state.jobs.get(due.job)
        if job is None or job.attempt != due.attempt or job.status not in _GOES_ON:
            return False
        if due.job not in awaited:  # a job may have thousands of workers, and many entries
            starting = (place.turn for place in job.workers if _is_starting(job, place))
            awaited[due.job] = (frozenset(starting), frozenset(job.leaving))
        starts, leaves = awaited[due.job]
        return not leaves.isdisjoint(due.ranks) if due.ranks else due.turn in starts

    return lives


def _give_up_late(decision: DecisionBuilder, job: Job, entered: int) -> None:
    leaving = frozenset(job.leaving)
    late = [
        place.rank
        for place in job.workers
        if place.turn == entered and place.rank not in leaving and job.runs[str(place.rank)] is RunStatus.STARTING
    ]
    if late:
        decision.emit(e.AttemptTimedOut(job=job.id, attempt=job.attempt, what="start"))
        put_off(decision, job, late)
        leave(decision, job, late)
