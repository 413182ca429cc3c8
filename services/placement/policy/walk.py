"""One walk over the heads of all queues: who starts now, and why the others do not.

Within a walk room only shrinks, so a shape that did not fit once is not tried again. A walk over windows comes to the
same starts as a walk over the whole queues: a window leaves out only jobs behind others of their own class, and ends
the walk where one of these might start (`cuts`): behind a cut only a job that does not fit, or may not pass a head,
proves that the same is true of the ones left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.placement.policy.ahead import Ahead
from services.placement.policy.arrays import may_start_one_more
from services.placement.policy.backfill import Heads
from services.placement.policy.behind import behind
from services.placement.policy.confirmations import with_confirmations
from services.placement.policy.elsewhere import place_job
from services.placement.policy.entering import places_to_enter
from services.placement.policy.fair_line import FairLine, merged
from services.placement.policy.gang import Places, place_gang
from shared.cluster.job import Job, JobStatus
from shared.cluster.maintenance import longest_run_ms
from shared.cluster.singly import grows, in_line
from shared.cluster.state import CellState
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec

Shape = tuple[object, ...]

_QUEUED = JobStatus.QUEUED


def shape_of(spec: JobSpec) -> Shape:
    """What decides whether a job fits: two jobs of one shape fit or do not fit alike, in the same state."""
    wants = spec.resources
    return (
        spec.tenant,
        spec.kind,
        spec.pools,
        spec.gpu_type,
        spec.workers,
        wants.gpu_milli,
        wants.cpu_milli,
        wants.memory_mib,
        spec.topology,
        spec.spread,
        spec.node_labels,
        spec.tolerations,
        spec.exclusive,
        spec.preemptible,
        spec.gang,
    )


def _shape(state: CellState, spec: JobSpec) -> Shape:
    """The same, in a cell that may have nodes that only short jobs may use."""
    return (*shape_of(spec), longest_run_ms(state, spec)) if state.closing else shape_of(spec)


@dataclass(slots=True)
class Walk:
    """What came of a walk. `is_whole` is False where it ended early, so that there may be more to start. `heads` are
    the jobs that are heads now and were none, `cleared` those that are none any more.
    """

    starts: int = 0
    deferred: dict[str, DeferCode] = field(default_factory=dict)
    is_whole: bool = True
    heads: list[str] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    lines: dict[str, Heads] = field(default_factory=dict)

    def line(self, state: CellState, head: QueueHead | FairLine, now_ms: int) -> Heads | None:
        """The heads of a queue that backfills, whose line may come in several pieces; None for all others."""
        if head.discipline is not QueueDiscipline.BACKFILL:
            return None
        return self.lines.setdefault(head.queue, Heads(state, now_ms))


def walk_heads(
    state: CellState,
    heads: Iterable[QueueHead],
    blocked: dict[Shape, DeferCode],
    now_ms: int,
    start: Callable[[Job, Places, str], bool],
) -> Walk:
    """Walk the queues in their order. `start` takes a job that fits, with its places and the head that it passes by
    that (or ""), changes the state, and says whether there is room for more.

    `blocked` holds the shapes that are known not to fit; the walk adds to it. The caller empties it when something
    becomes free.
    """
    walk = Walk()
    for head in merged(state, heads, lambda job: _waits(job, now_ms) and not _is_one_too_many(state, job), now_ms):
        if not _Line(state, head, blocked, now_ms, start, walk).go():
            walk.is_whole = False
            return walk
    return walk


class _Line:
    """The walk over one queue's line."""

    __slots__ = ("_ahead", "_blocked", "_fair", "_head", "_heads", "_listed", "_now_ms", "_start", "_state", "_walk")

    def __init__(
        self,
        state: CellState,
        head: QueueHead | FairLine,
        blocked: dict[Shape, DeferCode],
        now_ms: int,
        start: Callable[[Job, Places, str], bool],
        walk: Walk,
    ) -> None:
        self._state, self._head, self._blocked, self._now_ms = state, head, blocked, now_ms
        self._start, self._walk, self._heads = start, walk, walk.line(state, head, now_ms)
        self._listed: tuple[str, ...] = head.jobs if isinstance(head, QueueHead) else ()
        self._fair: FairLine | None = None if isinstance(head, QueueHead) else head
        self._ahead = Ahead()

    def go(self) -> bool:
        """Whether the walk may go on with the next queue."""
        state, fair, heads, over, cuts = self._state, self._fair, self._heads, None, frozenset(self._head.cuts)
        jobs, blocked, deferred, now_ms = state.jobs, self._blocked, self._walk.deferred, self._now_ms
        is_found = self._ahead.has
        is_plain = fair is None and self._head.discipline is QueueDiscipline.BEST_EFFORT_FIFO
        for number, job_id in enumerate(self._head.jobs):
            job = jobs.get(job_id)
            if (
                is_plain
                and blocked
                and not is_found(job_id)
                and job is not None
                and job.status is _QUEUED
                and job.not_before_ms <= now_ms
            ):
                # Most jobs of a long line are like one before them that did not fit.
                known = (
                    blocked.get(_shape(state, job.spec))
                    if job.spec.gang and job.spec.array_most_running is None
                    else None
                )
                if known is not None:
                    deferred[job_id] = known
                    continue
            if job is None or not _waits(job, now_ms) or self._is_put_off(job):
                if number in cuts:
                    return False
                continue
            if heads is not None and (over := heads.over(job.spec)) is not None and over.is_due:
                _pass_over(state, job, fair is not None, self._walk)
                continue
            found = self._find(job, number)
            if isinstance(found, DeferCode):
                if self._ends_at(job, number, found, is_first=over is None):
                    return True
                continue
            has_room = self._let_in(job, found, "" if over is None else over.spec.id)
            waits = has_room and self._waits_for_the_rest(job)
            if waits and fair is None:
                return True
            if not has_room or number in cuts:
                return False
            if fair is not None:
                fair.served(stays=waits)
        return fair is None or not fair.is_cut

    def _is_put_off(self, job: Job) -> bool:
        """Whether as many elements of its array run as may: it is told so."""
        if job.spec.array_most_running is None or not _is_one_too_many(self._state, job):
            return False
        self._walk.deferred[job.spec.id] = DeferCode.ARRAY_LIMIT
        return True

    def _find(self, job: Job, number: int) -> Places | DeferCode:
        state, blocked = self._state, self._blocked
        if not job.spec.gang:
            return _enter(state, job, blocked, self._now_ms)
        ahead = self._ahead
        if blocked and not ahead.has(job.spec.id):
            known = blocked.get(_shape(state, job.spec))
            if known is not None:
                return known
        return ahead.take(state, self._listed, number, job, self._now_ms) or _try(state, job, blocked)

    def _ends_at(self, job: Job, number: int, code: DeferCode, *, is_first: bool) -> bool:
        """This job does not fit: whether nobody behind it may start either."""
        walk, fair, waits = self._walk, self._fair, job.status is _QUEUED
        if fair is not None and self._head.discipline is QueueDiscipline.STRICT_FIFO and job.spec.gang:
            # Whom it keeps back goes by the reason, and since the shape was found not to fit that may be another one.
            newest = _try(self._state, job, self._blocked)
            code = newest if isinstance(newest, DeferCode) else code
        if waits:
            walk.deferred[job.spec.id] = code
        if self._head.discipline is QueueDiscipline.STRICT_FIFO:
            walk.deferred.update(behind(self._state, self._listed, number, self._now_ms))
            if fair is None or fair.ends_at(code, walk.deferred):
                return True
        if self._heads is not None and waits:
            is_head = is_first and self._heads.add(job, code)
            _block(self._state, job, is_head, is_first or fair is not None, walk)
        return False

    def _let_in(self, job: Job, places: Places, over: str) -> bool:
        """Start the job, or let workers enter. All that fit come before anybody behind. Whether the walk may go on."""
        self._walk.starts += 1
        has_room = self._start(job, places, over)
        while has_room and not job.spec.gang and grows(job, self._now_ms):
            found = _enter(self._state, job, self._blocked, self._now_ms)
            if isinstance(found, DeferCode):
                break
            has_room = self._start(job, found, "")
        return has_room

    def _waits_for_the_rest(self, job: Job) -> bool:
        """Whether a job that is no gang keeps its strict queue back, since not all of its workers have places."""
        return self._head.discipline is QueueDiscipline.STRICT_FIFO and grows(job, self._now_ms)


def _waits(job: Job, now_ms: int) -> bool:
    """Whether it may be tried now."""
    return job.not_before_ms <= now_ms if job.status is JobStatus.QUEUED else grows(job, now_ms)


def _is_one_too_many(state: CellState, job: Job) -> bool:
    """Whether it would be one more element of its array than may run. One that runs already is no further one."""
    return job.status is _QUEUED and not may_start_one_more(state, job.spec)


def _pass_over(state: CellState, job: Job, keeps_mark: bool, walk: Walk) -> None:
    """It may not pass a head. Whatever it waited for before, it is told that only where nothing was told before."""
    if job.deferred is None and job.status is JobStatus.QUEUED:
        walk.deferred[job.spec.id] = DeferCode.BEHIND_HEAD
    if job.spec.id in state.heads and not keeps_mark:
        walk.cleared.append(job.spec.id)


def _block(state: CellState, job: Job, is_head: bool, keeps_mark: bool, walk: Walk) -> None:
    """It does not fit: note whether it became a head, or has one before it and is none any more. Where tenants take
    turns, who is first changes all the time: then who was a head once goes on counting as from then.
    """
    was_head = job.spec.id in state.heads
    if is_head and not was_head:
        walk.heads.append(job.spec.id)
    elif was_head and not keeps_mark:
        walk.cleared.append(job.spec.id)


def _enter(state: CellState, job: Job, blocked: dict[Shape, DeferCode], now_ms: int) -> Places | DeferCode:
    """The same for a job that is no gang, at its start or later. Whether it fits goes by the fewest that must."""
    shape = _shape(state, in_line(job))
    found = blocked.get(shape) or places_to_enter(state, job, now_ms)
    if isinstance(found, DeferCode):
        found = with_confirmations(state, job.spec, found)
    if isinstance(found, DeferCode) and found is not DeferCode.RESERVED_FOR_OTHER:
        blocked[shape] = found
    return found


def _try(state: CellState, job: Job, blocked: dict[Shape, DeferCode]) -> Places | DeferCode:
    spec = job.spec
    found = place_job(state, job) if job.avoid else place_gang(state, spec)  # most jobs have never failed
    if isinstance(found, DeferCode):
        found = with_confirmations(state, spec, found)
        if found is not DeferCode.RESERVED_FOR_OTHER:
            # From whom others keep room goes by priority too, which is no part of a shape.
            blocked[_shape(state, spec)] = found
    return found
