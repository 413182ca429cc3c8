"""One look at a whole cell: for which waiting jobs others are to yield, and who.

The jobs come in the order of their turns, queue by queue, and each is looked at on the state as it will be behind those
before it: with what these will take, and without who yields to them. So no two of them count on the same room, and what
one victim gives free beyond what its job needs lets the next ones in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fallow.services.loaning.policy.preemption.holdings import Holdings
from fallow.services.loaning.policy.preemption.line import Line, line_behind
from fallow.services.loaning.policy.preemption.memory import Memory
from fallow.services.loaning.policy.preemption.search import Found, Missing, find_victims
from fallow.services.loaning.policy.preemption.trial import enters, fit, leave
from fallow.services.placement.explain.queue_position import turns_of
from fallow.services.placement.queue.lines.classes import room_of
from fallow.services.placement.search.reason_precedence import STRUCTURAL
from fallow.services.placement.search.unacknowledged_starts import with_confirmations
from fallow.shared.cluster.model.config import PreemptRule, Queue
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.preemption.rules import protected_until_ms
from fallow.shared.events.base import later
from fallow.shared.events.operations import PreemptionMode
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason

SEARCHES_MAX = 64
"""So many searches at most in one look; the next one goes on behind them."""

IN_LINE_MAX = 512
"""For so many jobs like the one before victims are told at most in one look: the first of them do not wait for all."""

Kind = tuple[object, ...]

_OF_WORDS = (PendingReason.UNACKNOWLEDGED, PendingReason.NODES_SILENT)
"""Idle room would do for a job that waits for this, once nodes have said what is expected of them."""


@dataclass(slots=True)
class Seen:
    """What a look has found: by waiting job who yields to it, and how many GPUs are missing at least where nobody does.
    `is_whole` is False where there were more kinds of jobs than one look tries. At `again_ms` some of it is over by
    time alone.
    """

    found: dict[str, Found] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True
    again_ms: int | None = None

    def soon(self, at_ms: int | None, now_ms: int) -> None:
        """Look again then, if that is to come."""
        if at_ms is not None and at_ms > now_ms and (self.again_ms is None or at_ms < self.again_ms):
            self.again_ms = at_ms


def look(state: CellState, queues: Sequence[Queue], now_ms: int, memory: Memory) -> Seen:
    """Look at all jobs that wait. The state is given back as it was."""
    seen = Seen()
    if state.policy.preemption is PreemptionMode.OFF or not state.waiting:
        return seen
    clock_ms, mark = state.clock_ms, state.checkpoint()
    state.clock_ms = max(now_ms, clock_ms)
    try:
        _Look(state, now_ms, memory, seen).go(queues)
    finally:
        state.clock_ms = clock_ms
        state.rollback(mark)
    return seen


@dataclass(slots=True)
class _Last:
    """The last job to which somebody was found to yield: its kind, its line if it has one by now, and after how many
    changes of the state the job counts as started.
    """

    kind: Kind
    found: Found
    line: Line | None
    changes: int


class _Look:
    """`state` is changed, under a checkpoint."""

    def __init__(self, state: CellState, now_ms: int, memory: Memory, seen: Seen) -> None:
        self._state, self._now_ms, self._memory, self._seen = state, now_ms, memory, seen
        self._blocked: dict[Kind, int | None] = {}
        """Kinds of jobs for which nobody yields, and how many GPUs are missing."""
        self._holdings = Holdings.of(state)
        self._leaving = [job for job in state.jobs.values() if job.status is JobStatus.STOPPING]
        self._yielded_to = {job_id for job in state.jobs.values() for job_id in job.yielded_to}
        self._searches, self._in_line = SEARCHES_MAX, IN_LINE_MAX
        self._changes = 0
        """How often the state was changed."""
        self._unfit: dict[Kind, tuple[int, PendingReason]] = {}
        """Kinds that do not fit as of so many changes, and why."""
        self._last: _Last | None = None
        self._starts_left: dict[str, int | None] = {}
        """By array how many more elements of it may start behind those that are counted on."""

    def go(self, queues: Sequence[Queue]) -> None:
        """Look at the queues in their order."""
        leave(self._state, self._leaving)
        for job_id, asked in [*self._memory.asked.items()]:
            if self._memory.is_open(job_id, self._now_ms):
                self._count_on(self._state.jobs.get(job_id), asked.found)
        for queue in queues:
            for job in turns_of(self._state, queue, self._ready(queue, queues[0]), self._now_ms):
                if not self._may_start_one_more(job):
                    continue  # it waits for its array, and keeps no other job back
                if self._is_kept(job, queue) and queue.discipline is QueueDiscipline.STRICT_FIFO:
                    break

    def _ready(self, queue: Queue, first: Queue) -> Iterator[Job]:
        """The jobs of a queue that wait for room and their turn alone, and for whom none is made yet."""
        state = self._state
        for job in state.jobs.values():
            if job.status is not JobStatus.QUEUED or (job.spec.queue or first.name) != queue.name:
                continue
            is_ready = job.not_before_ms <= self._now_ms and job.deferred not in STRUCTURAL
            is_ready = is_ready and self._may_start_one_more(job)
            if is_ready and job.spec.id not in state.rooms and not self._memory.is_open(job.spec.id, self._now_ms):
                yield job

    def _is_kept(self, job: Job, queue: Queue) -> bool:
        """Whether the job goes on waiting: it does not fit, and nobody yields to it."""
        kind = self._kind(job, queue)
        if kind in self._blocked:
            self._tell(job, self._blocked[kind])
            return True
        if self._fits(job, kind):
            return False
        if self._unfit[kind][1] in _OF_WORDS:
            until_ms = self._memory.waits_for_words(job.spec.id, self._now_ms)
            if self._now_ms < until_ms:
                self._seen.soon(until_ms, self._now_ms)
                return True
        else:
            self._memory.without_words.pop(job.spec.id, None)
        if self._memory.is_paused(job.spec.id, self._now_ms):
            return True
        found = self._found_for(job, queue, kind)
        if found is None:
            self._seen.is_whole = False
            return True
        if isinstance(found, Found):
            return not self._propose(job, found)
        self._blocked[kind] = found.gpus
        self._tell(job, found.gpus)
        self._look_again(job)
        return True

    def _fits(self, job: Job, kind: Kind) -> bool:
        """Whether the job has room without a victim; then it counts as started in what follows."""
        changes, code = self._unfit.get(kind, (-1, PendingReason.NO_FREE_GPUS))
        if changes != self._changes:
            places = fit(self._state, job)
            if not isinstance(places, PendingReason) and enters(self._state, job, places):
                self._changes += 1
                self._count_start(job)
                return True
            code = places if isinstance(places, PendingReason) else PendingReason.QUOTA_REACHED
            code = with_confirmations(self._state, job.spec, code)
        self._unfit[kind] = (self._changes, code)
        return False

    def _found_for(self, job: Job, queue: Queue, kind: Kind) -> Found | Missing | None:
        """Who yields to the job, by the line of its kind or by a search; None where this look has made its searches."""
        line = self._line_of(job, queue, kind)
        if line is not None:
            if not self._in_line:
                return None
            self._in_line -= 1
            found = line.next(job, self._now_ms)
            if found is not None:
                self._last = _Last(kind, found, line, self._changes + 1)
                return found
        if not self._searches:
            return None
        self._searches -= 1
        searched = find_victims(self._state, job, queue, self._now_ms, self._holdings)
        self._last = _Last(kind, searched, None, self._changes + 1) if isinstance(searched, Found) else None
        return searched

    def _line_of(self, job: Job, queue: Queue, kind: Kind) -> Line | None:
        """The line of the kind, as long as nothing has changed the state since its last job but that this one got its
        room; made for the second job.
        """
        last = self._last
        if last is None or last.kind != kind or last.changes != self._changes:
            return None
        if last.line is None:
            last.line = line_behind(self._state, job, last.found, queue, self._now_ms, self._holdings)
        return last.line

    def _propose(self, job: Job, found: Found) -> bool:
        """Let these yield. Where another job is still leaving the places, the room waits for that one, too.
        Whether they are let.
        """
        self._seen.found[job.spec.id] = found
        self._count_on(job, found)
        return True

    def _count_on(self, job: Job | None, found: Found) -> None:
        """Go on as if these had yielded, and the job stood where it will."""
        if job is None or job.status is not JobStatus.QUEUED:
            return
        self._changes += 1
        here = [each for each in found.victims if self._still_holds(each)]
        leave(self._state, here)
        for each in here:
            self._holdings.go(self._state, each)
        enters(self._state, job, found.places)
        self._count_start(job)

    def _may_start_one_more(self, job: Job) -> bool:
        """Whether its array lets the job start behind those that are counted on."""
        array = self._state.arrays.get(job.spec.array_of or "")
        return array is None or self._starts_left.setdefault(array.id, array.starts_left) != 0

    def _count_start(self, job: Job) -> None:
        """In what follows the job counts as started."""
        array = self._state.arrays.get(job.spec.array_of or "")
        if array is not None:
            left = self._starts_left.setdefault(array.id, array.starts_left)
            self._starts_left[array.id] = None if left is None else max(0, left - 1)

    def _still_holds(self, victim: Job) -> bool:
        now = self._state.jobs.get(victim.spec.id)
        if now is None or now.attempt != victim.attempt or now.spec.id in self._holdings.gone:
            return False
        return bool(now.workers) and now.status is not JobStatus.STOPPING

    def _kind(self, job: Job, queue: Queue) -> Kind:
        """What decides who yields to a job: one after another of the same kind finds nobody, if the first did not."""
        spec, is_alone = job.spec, job.spec.id in self._state.heads or job.spec.id in self._yielded_to
        came = job.number if queue.preempt is PreemptRule.LOWER_OR_NEWER_EQUAL else None
        return (
            room_of(self._state, spec),
            queue.name,
            spec.tenant,
            spec.priority,
            spec.preemptible,
            spec.id if is_alone else came,
        )

    def _tell(self, job: Job, gpus: int | None) -> None:
        if gpus is not None:
            self._seen.missing[job.spec.id] = gpus

    def _look_again(self, job: Job) -> None:
        """When more may yield to this job by time alone: as minimum run times end, and as it becomes a due head."""
        state, now_ms = self._state, self._now_ms
        since_ms = state.heads.get(job.spec.id)
        if since_ms is not None:
            self._seen.soon(later(since_ms, state.policy.backfill_wait_ms), now_ms)
        if any(quota.min_run_ms for quota in state.quotas.values()) or any(
            other.spec.min_run_ms for other in state.jobs.values()
        ):
            for other in state.jobs.values():
                if other.workers and other.spec.preemptible:
                    self._seen.soon(protected_until_ms(state, job, other), now_ms)
