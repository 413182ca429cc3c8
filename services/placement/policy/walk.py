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
from services.placement.policy.entering import places_to_enter
from services.placement.policy.fair_line import FairLine, merged
from services.placement.policy.gang import Places, place_gang
from services.placement.policy.turn import RECORD_BYTES_MOST, gang_bytes
from shared.cluster.job import Job, JobStatus
from shared.cluster.singly import grows, in_line
from shared.cluster.state import CellState
from shared.events.queue import QueueDiscipline, QueueHead
from shared.events.reasons import DeferCode
from shared.events.values import JobSpec

Shape = tuple[object, ...]


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
    for head in merged(state, heads, lambda job: _waits(job, now_ms), now_ms):
        if not _walk_head(state, head, blocked, now_ms, start, walk):
            walk.is_whole = False
            return walk
    return walk


def _walk_head(
    state: CellState,
    head: QueueHead | FairLine,
    blocked: dict[Shape, DeferCode],
    now_ms: int,
    start: Callable[[Job, Places, str], bool],
    walk: Walk,
) -> bool:
    """Whether the walk may go on with the next queue."""
    cuts, ahead, heads, over = frozenset(head.cuts), Ahead(), walk.line(state, head, now_ms), None
    listed, fair = (head.jobs, None) if isinstance(head, QueueHead) else ((), head)
    for number, job_id in enumerate(head.jobs):
        job = state.jobs.get(job_id)
        if job is None or not _waits(job, now_ms):
            if number in cuts:
                return False
            continue
        if (
            job.spec.array_most_running is not None
            and job.status is JobStatus.QUEUED
            and not may_start_one_more(state, job.spec)
        ):
            walk.deferred[job_id] = DeferCode.ARRAY_LIMIT
            if number in cuts:
                return False
            continue
        if heads is not None and (over := heads.over(job.spec)) is not None and over.is_due:
            _pass_over(state, job, fair is not None, walk)
            continue
        found: Places | DeferCode | None = blocked.get(shape_of(job.spec)) if blocked and job.spec.gang else None
        if not job.spec.gang:
            found = _enter(state, job, blocked, now_ms)
        elif found is None:
            found = ahead.take(state, listed, number, job, now_ms) or _try(state, job, blocked)
        if isinstance(found, DeferCode):
            if job.status is JobStatus.QUEUED:
                walk.deferred[job_id] = found
            if head.discipline is QueueDiscipline.STRICT_FIFO:
                walk.deferred.update(behind(state, listed, number, now_ms))
                if fair is None or fair.ends_at(found, walk.deferred):
                    return True
            if heads is not None and job.status is JobStatus.QUEUED:
                is_first = over is None and heads.add(job, found)
                _block(state, job, is_first, over is None or fair is not None, walk)
            continue
        walk.starts += 1
        has_room = start(job, found, "" if over is None else over.spec.id)
        if has_room and not job.spec.gang and grows(job):
            has_room = _enter_rest(state, job, blocked, now_ms, start)
            if has_room and head.discipline is QueueDiscipline.STRICT_FIFO and fair is None:
                return True
        if not has_room or number in cuts:
            return False
        if fair is not None:
            fair.served()
    return fair is None or not fair.is_cut


def _waits(job: Job, now_ms: int) -> bool:
    """Whether it may be tried now."""
    return job.not_before_ms <= now_ms and (job.status is JobStatus.QUEUED or grows(job))


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
    shape = shape_of(in_line(job))
    found = blocked.get(shape) or places_to_enter(state, job, now_ms)
    if isinstance(found, DeferCode):
        found = with_confirmations(state, job.spec, found)
    if isinstance(found, DeferCode) and found is not DeferCode.RESERVED_FOR_OTHER:
        blocked[shape] = found
    return found


def _enter_rest(
    state: CellState,
    job: Job,
    blocked: dict[Shape, DeferCode],
    now_ms: int,
    start: Callable[[Job, Places, str], bool],
) -> bool:
    """A job that is no gang has got some of its workers: the others follow, wherever there is room, before anybody
    behind it. Whether the walk may go on.
    """
    while grows(job):
        found = _enter(state, job, blocked, now_ms)
        if isinstance(found, DeferCode):
            return True
        if not start(job, found, ""):
            return False
    return True


def _try(state: CellState, job: Job, blocked: dict[Shape, DeferCode]) -> Places | DeferCode:
    spec = job.spec
    found = place_gang(state, spec)
    if spec.workers > 1 and not isinstance(found, DeferCode) and gang_bytes(found) > RECORD_BYTES_MOST:
        # A gang starts in one record or not at all, and no record could tell of this one.
        found = DeferCode.NO_SUCH_NODES
    if isinstance(found, DeferCode):
        found = with_confirmations(state, spec, found)
        if found is not DeferCode.RESERVED_FOR_OTHER:
            # From whom others keep room goes by priority too, which is no part of a shape.
            blocked[shape_of(spec)] = found
    return found
