"""One walk along the lines of all queues: who starts now, and why the others do not.

A walk comes by classes, and not by jobs: what keeps the first job of a class keeps all of them. Within a walk room only
shrinks, so what did not fit once is not tried again, and afterwards not before something has become free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fallow.services.placement.fit.empty_capacity import Reach, meet, without
from fallow.services.placement.owners.owners_first import leaves_owners_alone
from fallow.services.placement.queue.due_heads import WAITS, OwnBefore, due_heads
from fallow.services.placement.queue.fair_share import Shares
from fallow.services.placement.queue.heads import WAITED_FOR, Head, Heads, is_due, reserved_head
from fallow.services.placement.queue.identical_jobs import TOGETHER_MAX, BatchPlacement
from fallow.services.placement.queue.lines.course import ByShares, Course, OneLine, Turns
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.lines import Lines
from fallow.services.placement.queue.lines.reasons import tell
from fallow.services.placement.queue.lines.row import InVain, Need, RoomRows, Row
from fallow.services.placement.queue.planned_places import may_start_in
from fallow.services.placement.queue.reserved import Off, Reserved, reach_of_places
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.beside import place_beside
from fallow.services.placement.search.elsewhere import place_job
from fallow.services.placement.search.gang import Places, place_gang
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.services.placement.search.quota_check import is_ever_allowed, is_kept_by_quotas, is_over_limits
from fallow.services.placement.search.reason_precedence import OF_QUOTA, is_of_quota
from fallow.services.placement.search.unacknowledged_starts import with_confirmations
from fallow.shared.cluster.model.independent_workers import grows, in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason

Start = Callable[[Job, Places, str], bool]
"""Takes a job that fits, with its places and the head that it passes by that (or ""), changes the state, and says
whether the record has room for more.
"""

NOWHERE: Reach = {}
_QUEUED = JobStatus.QUEUED
_STRICT, _BACKFILL = QueueDiscipline.STRICT_FIFO, QueueDiscipline.BACKFILL
_OF_TENANT = (*sorted(OF_QUOTA), PendingReason.RESERVED_FOR_OTHER)
"""Reasons that hold for a class, since they go by whose it is. All others hold for all that need the same room."""

TRIES_MAX = 500
"""So many kinds of jobs at most are looked for places in vain in one walk; the next one goes on behind them, since it
knows why these do not fit.
"""

LOOKS_OF_A_TRY = 50
"""For each so many nodes that were looked at a look for places counts as one try more, in vain or not: of kinds that
are dear to try a walk tries fewer.
"""

TRIES_BESIDE_MAX = 16
"""So many kinds of jobs that a head keeps back are tried in vain on other nodes in one walk along a queue, the next
ones in the next walk: each is tried again only when more has become free, and when all the others had their turn.
"""


@dataclass(slots=True)
class CycleResult:
    """What came of a walk. `is_whole` is False where the record was full, or as many kinds were tried in vain as may
    be, or jobs are to come by again that were kept off, so that there may be more to start; `tries_left` is how many
    tries were left, below zero behind a dear one. `heads` are the jobs that are heads now and were none, `cleared`
    those that are none any more. `has_untried` tells that some kinds of jobs behind a head are still to be tried on
    other nodes; `has_spent_tries`, that this is so because as many were tried as may be in one walk; `has_untold`, that
    more jobs are to be told why they wait; `has_kept_off`, that some were kept off for one whose own turn may come
    behind theirs; `has_come_to_wait`, that one waits for the first time, whatever keeps it, before a due head in the
    line of its tenant, which may keep nothing any more in the next walk; `has_head_due_at_once`, that a head of a queue
    by shares is one since this walk and waits no longer until it is due, so that it keeps its room before its turn in
    the next one. At `changes_ms` some of what is kept changes by time alone: as nodes close for heads, and as runs
    would no longer end before planned starts.
    """

    starts: int = 0
    deferred: dict[str, PendingReason] = field(default_factory=dict)
    is_whole: bool = True
    tries_left: int = TRIES_MAX
    heads: list[str] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    has_untried: bool = False
    has_spent_tries: bool = False
    has_untold: bool = False
    has_kept_off: bool = False
    has_come_to_wait: bool = False
    has_head_due_at_once: bool = False
    changes_ms: int | None = None


ScheduleQueues = Callable[[CellState, Lines, int, Start], CycleResult]
"""Walks the lines of a cell once, at this cell time."""


def schedule_queues(state: CellState, lines: Lines, now_ms: int, start: Start) -> CycleResult:
    """Walk the queues in their order. What heads of one wait for, the queues behind it leave alone."""
    walk = CycleResult()
    queue_of = {job_id: lines.queue(state.jobs[job_id].spec.queue) for job_id in state.reservations}
    heads = Heads(state, now_ms, Reserved(state, queue_of, now_ms))
    for queue in lines.in_order():
        heads.reserved.enter(queue[0].queue)
        if not _QueueScan(state, lines, queue, heads, now_ms, start, walk).go():
            walk.is_whole = False
            break
        heads.next_queue()
    if walk.is_whole and not walk.has_spent_tries:
        lines.tries += 1
    lines.were_cut = walk.tries_left <= 0
    moments = (heads.closes_ms(), heads.reserved.changes_ms)
    walk.changes_ms = min((at_ms for at_ms in moments if at_ms is not None), default=None)
    return walk


class _QueueScan:
    """The walk along one queue."""

    def __init__(
        self,
        state: CellState,
        lines: Lines,
        queue: list[Line],
        heads: Heads,
        now_ms: int,
        start: Start,
        walk: CycleResult,
    ) -> None:
        self._state, self._lines, self._now_ms, self._start, self._walk = state, lines, now_ms, start, walk
        self._queue = queue[0].queue
        self._discipline = self._queue.discipline
        self._is_fair = self._queue.order is QueueOrder.FAIR_SHARE
        courses = [Course(line, self._shut_if_full) for line in queue]
        self._turns: Turns = OneLine(courses[0])
        if self._is_fair:
            self._turns = ByShares(courses, Shares(state, now_ms), state.jobs)
        self._heads, self._reserved = heads, heads.reserved
        self._own_before = OwnBefore(state, lines, heads, courses)
        self._deferred: dict[str, PendingReason] = {}  # of this queue alone
        self._blocking: dict[str, None] = {}
        self._heads_of: dict[RoomRows, list[str]] | None = None
        self._met: dict[Row | RoomRows, None] = {}
        self._ahead = BatchPlacement()
        self._tries = TRIES_BESIDE_MAX

    def go(self) -> bool:
        """Whether the walk may go on with the next queue."""
        if self._is_fair and self._discipline is _BACKFILL:
            self._keep_for_due_heads()
        has_room = True
        while has_room and (turn := self._turns.first()) is not None:
            has_room = self._walk.tries_left > 0 and self._serve(*turn)
        for course in self._turns.courses:
            course.close()
            if has_room:  # else the next walk goes on here, and tells what then still waits
                told = self._deferred
                self._walk.has_untold |= tell(self._state, course, told, self._is_kept_back, self._is_kept_off)
        self._walk.deferred.update(self._deferred)
        self._walk.has_come_to_wait |= self._heads.are_before_turns and self._has_come_to_wait()
        if has_room and self._discipline is _BACKFILL:
            self._clear_heads()
        return has_room

    def _keep_for_due_heads(self) -> None:
        """By shares a head that is due keeps what it waits for from other tenants whichever tenant has the turn: one
        behind others that have waited longer only what is beside these; one that stands behind a job of its tenant that
        waits for the same, nothing.
        """
        begun = self._state.capacity.effort.looks
        due = due_heads(self._state, self._lines, self._queue, self._now_ms)
        self._own_before.look_for(due)
        for job, line, row in due:
            need = row.rows.need
            room = {} if self._heads.is_before_turns(job.spec.id) else self._heads.room_before_turns(job, need)
            known = row.code or need.code or job.deferred
            if not room or self._own_before.has_one_for(job, line, row, known, room):
                continue
            is_cut = room != self._heads.reach(need, job.spec)
            code = self._waits_for(line, row, job, is_cut=is_cut)
            if (
                is_of_quota(code)
                and not is_of_quota(known)
                and self._own_before.has_one_for(job, line, row, code, room)
            ):
                continue
            if code is None or code in WAITED_FOR:
                self._heads.add_before_turns(job, need, code, room)
        # One try is left in any case: else a walk that looks at dear heads first would come to no tenant's turn.
        self._walk.tries_left -= min(self._tries_since(begun), max(0, self._walk.tries_left - 1))

    def _waits_for(self, line: Line, row: Row, job: Job, *, is_cut: bool) -> PendingReason | None:
        """What keeps a head now, None where it could start. Of one that keeps a part of its room only (`is_cut`) and of
        which no walk has told it, None unless quotas keep it from any GPU type: a look there closes nodes, and would be
        made for each head in each walk anew.
        """
        if row.is_limited and not may_start_one_more(self._state, job.spec):
            return PendingReason.ARRAY_LIMIT
        code = row.code or row.rows.need.code
        if code is not None and not self._is_stale(job, code):
            return code
        if is_cut:
            return PendingReason.QUOTA_REACHED if is_kept_by_quotas(self._state, in_line(job)) else None
        found = self._try(line, row, job) if job.spec.gang else self._enter(job)
        return found if isinstance(found, PendingReason) else None

    def _is_stale(self, job: Job, code: PendingReason) -> bool:
        """Whether this no longer tells why a head waits: its tenant is at no limit any more, or has come to one since
        it was looked for, by what it has started behind the head.
        """
        if is_of_quota(code):
            return not is_over_limits(self._state, job.spec)
        is_for_room = code in WAITED_FOR and code is not PendingReason.RESERVED_FOR_OTHER
        return is_for_room and is_kept_by_quotas(self._state, in_line(job))

    def _serve(self, course: Course, row: Row) -> bool:
        """The first job of the row whose turn it is starts, or something keeps its class. Whether the record has room
        for more.
        """
        assert row.first is not None, "a job waits in it"
        job = self._state.jobs[row.first[-1]]
        over = self._heads.over(row.rows.need, job.spec)
        is_new = row.code is None and row.rows.need.code is None
        may_not_pass = over is not None and over.is_due
        has_plan = job.spec.id in self._state.reservations
        goes_by_plans = bool(self._reserved) and (is_new or may_not_pass or has_plan)
        off, keeper = self._kept_from(row, job) if goes_by_plans else (NOWHERE, None)
        if over is not None and may_not_pass:
            never = self._why_never(course, row, job, over)
            if never is None:
                return self._go_beside(course, row, job, over, off)
            self._keep(course, row, job, never, over)
            return True
        # Also where a look for places has found none: that look leaves places alone which a planned start may take.
        if has_plan and self._is_planned_here(job, off):
            over_id = "" if over is None else over.spec.id
            return self._let_in(course, row, job, self._state.reservations[job.spec.id].workers, over_id)
        if keeper is not None and self._is_known_beside(row, job, off):
            return self._go_beside(course, row, job, keeper, off, may_be_head=self._may_be_head(row, over))
        found = self._find(course, row, job)
        if not isinstance(found, PendingReason):
            if keeper is not None and meet(off, reach_of_places(self._state, found)):
                return self._go_beside(course, row, job, keeper, off, may_be_head=self._may_be_head(row, over))
            return self._let_in(course, row, job, found, "" if over is None else over.spec.id)
        if self._discipline is not QueueDiscipline.BEST_EFFORT_FIFO:
            self._keep(course, row, job, found if is_new else self._newest(course, row, job, found), over)
        return True

    def _why_never(self, course: Course, row: Row, job: Job, over: Head) -> PendingReason | None:
        """What keeps a job for good that a due head behind it in the line of its tenant keeps back; None where it may
        start one day. Such a job is told that, and not that it stands behind one that waits longer.
        """
        is_by_own = over.is_before_turns and over.spec.tenant == job.spec.tenant
        if not is_by_own or job.status is not _QUEUED or is_ever_allowed(self._state, job):
            return None
        if is_of_quota(row.code):
            return row.code
        found = self._find(course, row, job)
        if not isinstance(found, PendingReason):
            return None
        return found if is_of_quota(found) else self._newest(course, row, job, found)

    def _shut_if_full(self, line: Line, row: Row) -> bool:
        """Take a row off the walk's way whose array may have no more at once. Whether it is such a one."""
        assert row.first is not None, "a job waits in it"
        if may_start_one_more(self._state, self._state.jobs[row.first[-1]].spec):
            return False
        self._lines.refuse(line, row, PendingReason.ARRAY_LIMIT, is_shut=True)
        return True

    def _kept_from(self, row: Row, job: Job) -> tuple[Reach, Head | None]:
        """The nodes that are kept from this job for planned starts, and the first job for which they are, as a head
        that may not be passed there. Nowhere, and None, where it could use none of these.
        """
        assert row.first is not None, "the job is its first one"
        off, kept = self._reserved_from(job, row.first)
        if kept is None or not meet(off, self._heads.reach(row.rows.need, job.spec)):
            return NOWHERE, None
        return off, reserved_head(self._state, kept)

    def _reserved_from(self, job: Job, order: Order) -> Off:
        return self._reserved.kept_from(job, order, is_before_turns=self._heads.is_before_turns(job.spec.id))

    def _is_known_beside(self, row: Row, job: Job, off: Reach) -> bool:
        """Whether it needs no look for places to know that the job starts on no other nodes than these in this walk."""
        if job.spec.id in self._state.reservations:
            return False
        if not self._tries or row.tried == self._lines.tries:
            return True
        beside = self._heads.room_beside(row.rows.need, job.spec)
        return self._known_beside(row, without(beside, off)) is not None

    def _is_planned_here(self, job: Job, off: Reach) -> bool:
        """Whether places are kept for the job, not on these nodes, and it may start in them now."""
        kept = self._state.reservations.get(job.spec.id)
        if kept is None or not kept.workers or job.status is not _QUEUED or not job.spec.gang:
            return False
        if off and meet(off, reach_of_places(self._state, kept.workers)):
            return False
        state, spec = self._state, job.spec
        return may_start_in(state, spec, kept.workers) and leaves_owners_alone(state, spec, kept.workers)

    def _find(self, course: Course, row: Row, job: Job) -> Places | PendingReason:
        known = row.code or row.rows.need.code
        if known is not None:
            return known
        begun = self._state.capacity.effort.looks
        found = self._look(course, row, job)
        tries = isinstance(found, PendingReason) + self._tries_since(begun)
        self._walk.tries_left -= tries
        row.tries = row.rows.need.tries = max(1, tries)
        return found

    def _tries_since(self, begun: int) -> int:
        """As how many tries the nodes count that were looked at since these."""
        return (self._state.capacity.effort.looks - begun) // LOOKS_OF_A_TRY

    def _look(self, course: Course, row: Row, job: Job) -> Places | PendingReason:
        if not job.spec.gang:
            entered = self._enter(job)
            if job.status is _QUEUED or entered is not PendingReason.NO_SUCH_NODES:
                return self._noted(course.line, row, entered)
            # It has all that its nodes hold: that says nothing of others that need the same.
            self._lines.refuse(course.line, row, entered, is_shut=True)
            return entered
        found = self._ahead.take(self._state, course, row, job)
        return self._try(course.line, row, job) if found is None else found

    def _try(self, line: Line, row: Row, job: Job) -> Places | PendingReason:
        state = self._state
        found = place_job(state, job) if job.avoid else place_gang(state, job.spec)  # most jobs have never failed
        if isinstance(found, PendingReason):
            found = with_confirmations(state, job.spec, found)
        return self._noted(line, row, found)

    def _enter(self, job: Job) -> Places | PendingReason:
        """Find places for a job that is no gang, at its start or later."""
        found = places_to_enter(self._state, job, self._now_ms)
        return with_confirmations(self._state, job.spec, found) if isinstance(found, PendingReason) else found

    def _noted(self, line: Line, row: Row, found: Places | PendingReason) -> Places | PendingReason:
        """Note which jobs wait for the same reason, if there are no places."""
        if isinstance(found, PendingReason):
            if found in _OF_TENANT:
                is_shut = self._discipline is QueueDiscipline.BEST_EFFORT_FIFO
                self._lines.refuse(line, row, found, is_shut=is_shut)
            else:
                self._lines.block(row.rows.need, row, found)
        return found

    def _let_in(
        self, course: Course, row: Row, job: Job, places: Places, over: str, *, is_beside: bool = False
    ) -> bool:
        """Start the job, or let workers enter. All that fit come before any job behind, unless it `is_beside` a head.
        Whether the record has room for more.
        """
        self._walk.starts += 1
        has_room = self._start_in(job, places, over)
        if job.spec.gang:
            if job.status is _QUEUED:  # the record had no room for it
                return False
            rows = row.rows
            self._lines.started(row)
            if self._lets_others_come_again(job, rows):
                return False
            goes_on = not (self._is_fair or self._heads.are_by_tenant or self._reserved)
            if goes_on and self._discipline is not _BACKFILL:
                return has_room and self._go_on(course, rows)
        else:
            has_room = has_room and (is_beside or self._let_others_in(job))
            self._lines.look_at(self._state, job, self._now_ms)
            if job.status is not _QUEUED and self._lets_others_come_again(job, row.rows):
                return False
        self._turns.served()
        return has_room

    def _lets_others_come_again(self, job: Job, rows: RoomRows) -> bool:
        """Whether those that were kept off for this job, which has started, come by again, before all that are still
        to come.
        """
        comes_again = self._is_waited_for_no_more(job, rows) and self._walk.has_kept_off
        if comes_again:
            self._lines.tries += not self._walk.has_spent_tries
        return comes_again

    def _is_waited_for_no_more(self, job: Job, rows: RoomRows) -> bool:
        """Whether a job that has started kept others off by a planned start, or before its turn."""
        was_planned = bool(self._reserved) and self._reserved.started(job)
        was_before_turns = self._heads.started(job.spec.id)
        if self._own_before.was_last(rows) or was_before_turns:
            self._keep_for_due_heads()  # one that stood behind it is the first now
        return was_planned or was_before_turns

    def _go_on(self, course: Course, rows: RoomRows) -> bool:
        """Start the next jobs that need the same room, as far as places were found for them along with one before.
        Whether the record has room for more.
        """
        ahead, state = self._ahead, self._state
        if not ahead.has(state, rows.need):
            return True
        second, has_room = course.second(), True
        while has_room and ahead.has(state, rows.need):
            row = rows.first()
            if row is None or row.first is None or row.is_limited or (second is not None and second < row.first):
                break
            started, has_room = self._start_first_of(row, second)
            if not started:
                break
        return has_room

    def _start_first_of(self, row: Row, second: Order | None) -> tuple[int, bool]:
        """Start the first jobs of a row in places that were found for them: all that stand before the `second` place,
        if no other row needs the same room, else one, behind which the first job of another row may come. They leave
        the line together, which for many costs little more than for one; heads are not told, since none goes by whose
        jobs run (`are_by_tenant`). How many have started, and whether the record has room for more.
        """
        ahead, state, jobs, start = self._ahead, self._state, self._state.jobs, self._start
        need, started, has_room = row.rows.need, 0, True
        try:
            for order in row.orders(TOGETHER_MAX if len(row.rows.rows) == 1 else 1):
                job = jobs[order[-1]]
                is_next = (second is None or order < second) and not job.avoid and ahead.has(state, need)
                places = ahead.next(state, row, job) if is_next else None
                if places is None:
                    break
                self._walk.starts += 1
                has_room = start(job, places, "")
                if job.status is _QUEUED:  # the record had no room for it
                    return started, False
                started += 1
                if not has_room:
                    break
        finally:
            if started:
                self._lines.started(row, started)
        return started, has_room

    def _let_others_in(self, job: Job) -> bool:
        """Further workers of a job that is no gang, as far as they fit. Whether the record has room for more."""
        has_room = True
        while has_room and grows(job, self._now_ms):
            found = self._enter(job)
            if isinstance(found, PendingReason):
                break
            has_room = self._start_in(job, found, "")
        return has_room

    def _start_in(self, job: Job, places: Places, over: str) -> bool:
        self._ahead.starts_in(places)
        has_room = self._start(job, places, over)
        self._heads.usage_changed(job.spec.tenant)
        return has_room

    def _keep(self, course: Course, row: Row, job: Job, code: PendingReason, over: Head | None) -> None:
        """This job does not fit: note which jobs it keeps back."""
        if job.status is _QUEUED:
            self._deferred[job.spec.id] = code
        if self._discipline is _STRICT or (job.status is _QUEUED and self._may_be_head(row, over)):
            self._note_head(row, job, code)
        if row.code is None and (over is None or over.under is None) and self._keeps_its_room(job):
            course.pass_room()
        else:
            course.pass_row(row)

    def _newest(self, course: Course, row: Row, job: Job, code: PendingReason) -> PendingReason:
        """Recompute the reason: the cached one may be stale, and it decides which jobs this one keeps back."""
        if not self._state.quotas or row.code not in (None, *_OF_TENANT):
            return code
        if is_of_quota(row.code) and job.spec.gang and is_over_limits(self._state, job.spec):
            return code
        newest = self._try(course.line, row, job) if job.spec.gang else self._enter(job)
        # A job that is no gang and has workers may lack nodes for more of them: that says nothing of other jobs.
        if not job.spec.gang and newest is not PendingReason.NO_SUCH_NODES:
            newest = self._noted(course.line, row, newest)
        return newest if isinstance(newest, PendingReason) else code

    def _may_be_head(self, row: Row, over: Head | None) -> bool:
        """Whether a job that finds no room keeps others back though it stands behind this head, which may be passed: if
        it has waited as a head before that came, or is the first to come before one that needs the same room.
        """
        return over is None or (bool(self._heads_in(row)) and row not in self._met and row.rows not in self._met)

    def _keeps_its_room(self, job: Job) -> bool:
        """Whether those that need the same room have none either, whatever their workers are about."""
        return self._discipline is _STRICT or job.status is _QUEUED

    def _note_head(self, row: Row, job: Job, code: PendingReason, beside: Reach | None = None) -> None:
        """The first job of its kind that does not fit is a head; of a queue that backfills the log says so."""
        is_head = self._heads.add(job, row.rows.need, code, self._discipline, self._heads_in(row), beside)
        if is_head:
            self._met[row if code in _OF_TENANT else row.rows] = None
        if is_head and self._discipline is _BACKFILL:
            self._blocking[job.spec.id] = None
            if job.spec.id not in self._state.heads:
                self._walk.heads.append(job.spec.id)
                self._walk.has_head_due_at_once |= self._is_fair and is_due(
                    self._state, job, self._now_ms, self._now_ms
                )

    def _heads_in(self, row: Row) -> list[str]:
        """The heads of this line that wait for the room that this row needs, also those behind the job that comes first
        now.
        """
        if self._heads_of is None:
            self._heads_of = {}
            for job_id in self._state.heads:
                place = self._lines.place_of(job_id)
                if place is not None and place[0].queue is self._queue:
                    self._heads_of.setdefault(place[1].rows, []).append(job_id)
        return [job_id for job_id in self._heads_of.get(row.rows, ()) if job_id in self._state.heads]

    def _go_beside(
        self, course: Course, row: Row, job: Job, over: Head, off: Reach, *, may_be_head: bool = True
    ) -> bool:
        """A head keeps the job back: it starts where no such head could be, and that is not kept for another one
        (`off`), or is a head there. Whether the record has room for more.
        """
        is_planned = bool(off) and job.spec.id in self._state.reservations
        need = row.rows.need
        beside = self._heads.room_beside(need, job.spec)
        if off:
            beside = without(beside, off)
        known = self._known_beside(row, beside) if beside else None
        if known is not None:
            self._note_beside(row, job, known, beside, is_planned=is_planned, may_be_head=may_be_head)
            self._pass_kept(course, row, job, over, known, off)
            return True
        if beside and not is_planned and (not self._tries or row.tried == self._lines.tries):
            self._walk.has_spent_tries |= row.tried != self._lines.tries
            self._walk.has_untried, beside = True, {}
        found = self._look_beside(need, job, beside) if beside else PendingReason.BEHIND_HEAD
        if not isinstance(found, PendingReason):
            return self._let_in(course, row, job, found, "", is_beside=True)
        if beside:
            self._tries -= not is_planned
            row.tried = self._lines.tries
            self._note_in_vain(row, job, found, beside, is_of_row=bool(off))
            self._note_beside(row, job, found, beside, is_planned=is_planned, may_be_head=may_be_head)
        self._pass_kept(course, row, job, over, found, off)
        return True

    def _look_beside(self, need: Need, job: Job, beside: Reach) -> Places | PendingReason:
        begun = self._state.capacity.effort.looks
        found = place_beside(self._state, job, self._heads.reach(need, job.spec), beside, self._now_ms)
        self._walk.tries_left -= self._tries_since(begun)
        return found

    def _note_in_vain(self, row: Row, job: Job, code: PendingReason, beside: Reach, *, is_of_row: bool) -> None:
        """It was looked for there in vain. Why a job that runs gets no more workers says nothing of others that need
        the same room.
        """
        is_of_row = is_of_row or code in _OF_TENANT or job.status is not _QUEUED
        (row if is_of_row else row.rows.need).in_vain = InVain(self._lines.freed, code, beside)

    def _known_beside(self, row: Row, beside: Reach) -> PendingReason | None:
        """Why it found no place there when it was tried last, if no more has become free since."""
        for found in (row.in_vain, row.rows.need.in_vain):
            if found is not None and found.freed == self._lines.freed and found.holds_for(beside):
                return found.code
        return None

    def _note_beside(
        self, row: Row, job: Job, code: PendingReason, beside: Reach, *, is_planned: bool, may_be_head: bool
    ) -> None:
        """One that finds no room beside the heads either keeps others back there, and only there: what a head waits for
        may be another's who passes it. One that has a planned start itself
        is told what it waits for: it stands behind no other.
        """
        if is_planned and job.status is _QUEUED:
            self._deferred[job.spec.id] = code
        if (
            may_be_head
            and self._discipline is not QueueDiscipline.BEST_EFFORT_FIFO
            and code in WAITED_FOR
            and self._keeps_its_room(job)
        ):
            self._note_head(row, job, code, beside)

    def _pass_kept(self, course: Course, row: Row, job: Job, over: Head, code: PendingReason, off: Reach) -> None:
        """It may not pass this head, and nor may any other that could use what the head needs, unless it is for reasons
        of its tenant, or of the workers that it has already. A planned job, or one of a queue by shares, may be kept
        off (`off`) for one whose turn comes later.
        """
        is_by_own = over.is_before_turns and over.spec.tenant == job.spec.tenant
        if is_by_own or job.status is not _QUEUED:
            is_news = row.kept_off != job.spec.id
            keeps_room = over.is_before_turns or self._own_before.keeps_behind(job, course.line)
            self._walk.has_come_to_wait |= is_news and keeps_room
            row.kept_off = job.spec.id
        is_for_later = bool(off) and (self._is_fair or job.spec.id in self._state.reservations)
        self._walk.has_kept_off |= is_for_later or self._heads.are_before_turns
        if code in _OF_TENANT or self._heads.is_by_tenant(over) or over.is_planned or not self._keeps_its_room(job):
            course.pass_row(row)
        else:
            course.pass_room()

    def _has_come_to_wait(self) -> bool:
        """Whether a job of this queue that stands before a due head of its tenant is told for the first time that it
        waits for what others have.
        """
        for job_id, code in self._deferred.items():
            job, place = self._state.jobs[job_id], self._lines.place_of(job_id)
            is_news = code in WAITS and job.status is _QUEUED and job.deferred not in WAITS
            if place is not None and is_news and self._own_before.keeps_behind(job, place[0]):
                return True
        return False

    def _is_kept_back(self, job: Job) -> bool:
        place = self._lines.place_of(job.spec.id)
        if place is None:
            return False
        over = self._heads.over(place[1].rows.need, job.spec)
        return over is not None and over.is_due

    def _is_kept_off(self, job: Job) -> bool:
        """Whether nodes that the job could use are kept for a planned start of another one, and it has none."""
        place, order = self._lines.place_of(job.spec.id), self._lines.order_of(job.spec.id)
        if not self._reserved or place is None or order is None or job.spec.id in self._state.reservations:
            return False
        off = self._reserved_from(job, order)[0]
        return bool(off) and meet(off, self._heads.reach(place[1].rows.need, job.spec))

    def _clear_heads(self) -> None:
        """Clear heads that no room would help any more. Whatever else comes between, another head before it or another
        reason for which it waits, a head has waited all the same: its wait is never begun anew.
        """
        for job_id in self._state.heads:
            place = self._lines.place_of(job_id)
            if place is None or job_id in self._blocking:
                continue
            line, row = place
            if line.queue is self._queue and not row.is_shut and self._is_beyond_help(row, self._state.jobs[job_id]):
                self._walk.cleared.append(job_id)

    def _is_beyond_help(self, row: Row, job: Job) -> bool:
        """Whether nothing but another job or another limit would. A lost node may be back at any time."""
        code = row.code or row.rows.need.code
        is_over = is_of_quota(code) and not is_ever_allowed(self._state, job)
        return is_over or code is PendingReason.RECORD_TOO_LARGE
