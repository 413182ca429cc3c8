"""Which due head of a queue by shares keeps a job back before its own turn, for one who reads the log."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.services.placement.fit.empty_capacity import Reach
from fallow.services.placement.queue.due_heads import WAITS, InOrder, is_too_far, kept_within, waits_on
from fallow.services.placement.queue.heads import Head, Heads, is_due
from fallow.services.placement.queue.lines.blocked import ANY
from fallow.services.placement.queue.lines.classes import Key, room_of
from fallow.services.placement.queue.lines.row import Need
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.independent_workers import in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order, order_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason


def head_before_turns(
    state: CellState, job: Job, queue: Queue, waiting: Sequence[Job], now_ms: int, *, has_room: bool
) -> Head | None:
    """The due head that a walk keeps room for whichever tenant has the turn, and that keeps this job back; of these
    `waiting` ones of its queue, among them those that run and want more workers. None where there is none, or the job
    is such a head itself and waits for room of its own: only where it has room (`has_room`) an older one keeps it off.
    """
    if queue.order is not QueueOrder.FAIR_SHARE or queue.discipline is not QueueDiscipline.BACKFILL:
        return None
    since_ms = state.heads
    due = [each for each in waiting if each.id in since_ms and is_due(state, each, since_ms[each.id], now_ms)]
    if not due:
        return None
    look = _Look(state, queue, waiting, due, now_ms)
    heads = look.heads
    for each in sorted(due, key=lambda head: (since_ms[head.id], head.number)):
        need = look.need_of(each)
        room = heads.room_before_turns(each, need)
        if each.deferred in WAITS and room and not look.has_own_before(each, room):
            heads.add_before_turns(each, need, each.deferred, room)
    waits_itself = heads.is_before_turns(job.id) and not has_room
    return None if waits_itself else heads.over(look.need_of(job), job.spec)


class _Look:
    """The waiting jobs of a queue as one reader looks at them."""

    def __init__(self, state: CellState, queue: Queue, waiting: Sequence[Job], due: list[Job], now_ms: int) -> None:
        self.heads = Heads(state, now_ms)
        self._state, self._queue, self._now_ms = state, queue, now_ms
        self._needs: dict[Key, Need] = {}
        self._due = {(each.spec.tenant, self.need_of(each)): None for each in due}
        self._of: dict[str, list[Job]] = {each.spec.tenant: [] for each in due}
        for each in waiting:
            has_turn = each.status is not JobStatus.QUEUED or may_start_one_more(state, each.spec)
            if each.spec.tenant in self._of and has_turn:
                self._of[each.spec.tenant].append(each)
        self._before: dict[str, tuple[InOrder, Order | None]] = {}

    def need_of(self, job: Job) -> Need:
        """The room that the job needs."""
        key = room_of(self._state, in_line(job))
        return self._needs.setdefault(key, Need(key, "", ANY))

    def has_own_before(self, head: Job, room: Reach) -> bool:
        """Whether a job of its tenant that stands before this head waits for what it may keep (`room`), or more kinds
        stand there than are looked at.
        """
        tenant, place = head.spec.tenant, self._place_of(head)
        if tenant not in self._before:
            self._before[tenant] = self._begin(tenant)
        competing, end = self._before[tenant]
        if end is not None and end < place:
            return True
        kept = kept_within(self.heads, head, self.need_of(head), head.deferred, room)
        return competing.first_for(place, kept) is not None

    def _begin(self, tenant: str) -> tuple[InOrder, Order | None]:
        """Its jobs that wait, in their order, and the place from which on none is looked at; None where all are."""
        line = sorted(self._of[tenant], key=self._place_of)
        own = [each for each in line if each.status is not JobStatus.QUEUED or each.deferred in WAITS]
        orders = [self._place_of(each) for each in own]
        return InOrder(orders, lambda at: self._waits_on(own[at])), self._end_of(line)

    def _end_of(self, line: list[Job]) -> Order | None:
        kinds = dict[Need, None]()
        for each in line:
            need = self.need_of(each)
            if need not in kinds and is_too_far(len(kinds)):
                return self._place_of(each)
            kinds[need] = None
        return None

    def _place_of(self, job: Job) -> Order:
        return order_in(self._queue, job.spec, job.submit_ms, job.number)

    def _waits_on(self, job: Job) -> Reach:
        need = self.need_of(job)
        is_due_too = (job.spec.tenant, need) in self._due
        return waits_on(self._state, self.heads, job, need, self._code_of(job), is_due=is_due_too)

    def _code_of(self, job: Job) -> PendingReason | None:
        """Why a job waits. Of the workers that one still wants the log says nothing: those that have room now, and have
        not entered, stand behind a head.
        """
        if job.status is JobStatus.QUEUED:
            return job.deferred
        found = places_to_enter(self._state, job, self._now_ms)
        return found if isinstance(found, PendingReason) else PendingReason.BEHIND_HEAD
