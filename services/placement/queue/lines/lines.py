"""All lines of a cell: who waits for a turn in which queue, and what classes were found not to fit.

They follow from the state, and are kept by the effects that change it. After a decision that is not in force they are
forgotten, and made anew from the state. What is noted of a class that does not fit holds until something that it waits
for may have changed: to try it again before would come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count

from fallow.services.placement.fit.empty_capacity import marks_of_reach
from fallow.services.placement.queue.lines.blocked import ANY, Blocked, MayFit, Place
from fallow.services.placement.queue.lines.classes import ARRAY, TENANT, Key, ask_of, class_of, room_of
from fallow.services.placement.queue.lines.closing import Closing
from fallow.services.placement.queue.lines.line import Line
from fallow.services.placement.queue.lines.row import Ask, Need, Row
from fallow.services.placement.queue.lines.touched import Touched
from fallow.shared.cluster.fold.due import DueHeap
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.independent_workers import in_line, lacks, may_go_on, next_pause_end_ms
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order, order_in
from fallow.shared.cluster.model.run_time import run_estimate_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Account, accounts
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason

_FAIR_SHARE = QueueOrder.FAIR_SHARE
_BEST_EFFORT = QueueDiscipline.BEST_EFFORT_FIFO
_QUEUED = JobStatus.QUEUED
_FOLLOWED: frozenset[type[e.Effect]] = frozenset(
    {
        e.JobStarted,
        e.JobResizing,
        e.WorkersSettled,
        e.JobStopping,
        e.JobRequeued,
        e.JobHeld,
        e.JobReleased,
        e.JobReady,
        e.JobUpdated,
        e.RoomHeld,
        e.RoomReleased,
    }
)
"""With new jobs, and those that end: the effects that let a job into a line or out of it."""

FOR_WANT_OF_GPUS = (PendingReason.NO_FREE_GPUS, PendingReason.FRAGMENTED, PendingReason.TOPOLOGY)
"""Reasons that hold for a job while no node has as many GPUs free as one of its workers wants."""

_ENDED: frozenset[type[e.Effect]] = frozenset({e.JobFailed, e.JobFinished, e.JobCancelled})
"""Who stood in no line before needs no look: nearly all of them ran."""


class Lines:
    """The lines of one cell, by queue and by tenant where tenants take turns."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._first = queues[0].name
        self._queues = {queue.name: queue for queue in queues}
        self._numbers = {queue.name: number for number, queue in enumerate(queues)}
        self._backfills = any(queue.discipline is QueueDiscipline.BACKFILL for queue in queues)
        self._by_run_time = False
        self._began = (-1, 0)
        self.forget()

    def begins(self, state: CellState) -> None:
        """A writer begins with the next decision of the log: that is none that came of a walk."""
        self._began = (state.version + 1, state.at_ms)

    def forget(self) -> None:
        """The state is another one."""
        self._kept_out: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._is_known, self._made = False, count()
        self._basis: object = None
        self._lines: dict[str, dict[str, Line]] = {}
        self._needs: dict[Key, Need] = {}
        self._places: dict[str, tuple[Line, Row, Order]] = {}
        self._asleep = DueHeap[tuple[int, str]]()
        self._blocked, self._nowhere = Blocked(), Blocked()
        self._hardware: list[object] = []
        self._closing: Closing | None = None
        self._of_tenant: dict[str, dict[Row, Line]] = {}
        self.touched = Touched()
        """Which of all this has changed; another thing when all of it is made anew."""
        self.freed = 0
        """How often a job may have come to have more room, or to wait for something else than room."""
        self.tries = 0
        """How often each of the kinds that heads keep back had its turn to be tried beside them."""
        self.were_cut = False
        """Whether the last walk had to end because as many kinds were tried as may be."""
        self.may_have_waited = False
        """Whether a worker counts as new until the next walk that an earlier writer may have looked for in vain."""
        self._have_opened = False

    @property
    def is_known(self) -> bool:
        """Whether the lines are those of the state; else the next walk makes them anew."""
        return self._is_known

    @property
    def kinds(self) -> int:
        """How many kinds of room are waited for: at most so often a walk looks for places in vain."""
        return len(self._needs)

    @property
    def count(self) -> int:
        """How many jobs stand in them."""
        return len(self._places)

    @property
    def are_rivals(self) -> bool:
        """Whether tenants take turns in a queue in which whoever comes first may keep the others back."""
        return any(
            len(lines) > 1 and self.queue(name).discipline is not _BEST_EFFORT for name, lines in self._lines.items()
        )

    # Who waits.

    def keep_out(self, job: Job) -> None:
        """No more workers enter this attempt of a job that runs, until the lines are made anew."""
        self._kept_out[job.id] = job.attempt

    def follow(self, state: CellState, effects: Iterable[e.AnyEffect], now_ms: int) -> bool:
        """Follow the state behind these effects. Whether a job has come to a place in which it may start, or a head has
        left the one in which it kept others back.
        """
        self._by_run_time = self._backfills and state.policy.reservations_max > 0
        by_lead = bool(state.maintenance_starts) or self._by_run_time
        basis = (
            bool(state.maintenance_starts),
            self._by_run_time,
            state.policy.default_run_estimate_ms if by_lead else 0,
        )
        if not self._is_known or basis != self._basis:
            self._begin(state, effects, now_ms)
            self._basis = basis
            return bool(self._places)
        is_due = self._close(now_ms)
        for effect in effects:
            kind = type(effect)
            if kind is e.JobEnqueued:
                is_due |= self._look_at_new(state, effect.spec.id, now_ms)  # type: ignore[union-attr]
            elif kind in _FOLLOWED or (kind in _ENDED and effect.job in self._places):  # type: ignore[union-attr]
                is_due |= self._look_at(state, effect.job, now_ms)  # type: ignore[union-attr]
            elif kind is e.ReservationSet and effect.job in self._places:  # type: ignore[union-attr]
                self._try_again(self._places[effect.job][1])  # type: ignore[union-attr]
                is_due = True
        while self._asleep.is_due(now_ms):
            is_due |= self._look_at(state, self._asleep.pop()[1], now_ms)
        return is_due

    def _try_again(self, row: Row) -> None:
        """A job of it may start now where it was not tried: places are kept for it, or others are than before."""
        for item in (row, row.rows.need):
            self._blocked.drop(item)
            self._nowhere.drop(item)
            self._open(item)

    def _begin(self, state: CellState, effects: Iterable[e.AnyEffect], now_ms: int) -> None:
        """From the state alone. A running job whose pause was over at the last decision stood in its line then, before
        whatever writer walked: it waits, and is no fresh one, unless it lacks workers by `effects` of this decision. Of
        one whose pause has ended since, nobody knows whether a writer walked behind that: where none did, to take it
        for one that waits would let others past a due head behind it.
        """
        self._clear()
        self._is_known = True
        began, before_ms = self._began
        decided_ms = before_ms if state.version == began else state.at_ms
        named = {getattr(effect, "job", "") for effect in effects}
        for job_id, job in state.jobs.items():
            self._look_at(state, job_id, now_ms)
            place = self._places.get(job_id)
            if place is None or job.status is _QUEUED or job_id in named:
                continue
            if may_go_on(job, decided_ms):
                place[0].fresh.pop(job_id, None)
            else:
                self.may_have_waited = True

    def look_at(self, state: CellState, job: Job, now_ms: int) -> Row | None:
        """Bring a job to its place, now that some of its workers have one. Its row, if it still waits for others."""
        self._look_at(state, job.spec.id, now_ms)
        place = self._places.get(job.spec.id)
        return None if place is None else place[1]

    def _look_at(self, state: CellState, job_id: str, now_ms: int) -> bool:
        """Bring a job to the place that the state gives it. Whether a walk may start something by that."""
        job, known = state.jobs.get(job_id), self._places.get(job_id)
        waits = job is not None and (job.status is _QUEUED or (lacks(job) and not self._is_kept_out(job)))
        waits = waits and job_id not in state.rooms  # it starts in its room, whoever has the turn
        if job is not None and waits:
            pause_end_ms = next_pause_end_ms(job, now_ms)
            if pause_end_ms is not None:
                self._asleep.push((pause_end_ms, job_id), _sleeps_in(state))
            waits = may_go_on(job, now_ms)
        if job is None or not waits:
            return known is not None and self._leave(job_id, known)
        return self._bring(state, job, in_line(job), known)

    def _is_kept_out(self, job: Job) -> bool:
        return self._kept_out.get(job.id) == job.attempt

    def _look_at_new(self, state: CellState, job_id: str, now_ms: int) -> bool:
        """The same for a job that has just come, which stands nowhere. Nearly every one may start at once."""
        job = state.jobs.get(job_id)
        if job is None or job.status is not _QUEUED or job.not_before_ms > now_ms or not job.spec.gang:
            return self._look_at(state, job_id, now_ms)
        return self._bring(state, job, job.spec, None)

    def _bring(self, state: CellState, job: Job, spec: JobSpec, known: tuple[Line, Row, Order] | None) -> bool:
        """Give a job that waits its place: in its line, among those of its class. Whether that is another one than the
        place that is known.
        """
        queue = self.queue(spec.queue)
        tenant = spec.tenant if queue.order is _FAIR_SHARE else ""
        room, order = room_of(state, spec), order_in(queue, spec, job.submit_ms, job.number)
        run_ms = run_estimate_ms(state, spec) if self._by_run_time else None
        if known is not None:
            line, row, before = known
            self.touched.add(row, line)
            is_alike = row.rows.need.key == room and row.key == class_of(row.rows.need, job, spec, run_ms)
            if is_alike and before == order and (line.queue.name, line.tenant) == (queue.name, tenant):
                return False
            self._leave(spec.id, known)
        lines = self._lines.get(queue.name)
        line = (None if lines is None else lines.get(tenant)) or self._line(queue, tenant)
        need = self._needs.get(room)
        if need is None or need.owner != spec.tenant:
            need = self._need(room, spec.tenant)
        key = class_of(need, job, spec, run_ms)
        found = line.rows.get(key)  # not by its truth: that is how many wait in it, which is dear to ask
        row = self._row(line, key, need, spec.tenant) if found is None else found
        line.add(row, order)
        self.touched.add(row, line)
        self._places[spec.id] = (line, row, order)
        line.fresh[spec.id] = row
        return True

    def _row(self, line: Line, key: Key, need: Need, tenant: str) -> Row:
        """A new row for a class."""
        row = line.row(key, need, is_limited=key[ARRAY] is not None)
        self._of_tenant.setdefault(tenant, {})[row] = line
        return row

    def _leave(self, job_id: str, place: tuple[Line, Row, Order]) -> bool:
        """Take a job out of its place. Whether it may have kept others back there."""
        line, row, order = place
        was_head = row.first == order and line.keeps_order
        del self._places[job_id]
        self.touched.add(row, line)
        self.freed += was_head
        line.remove(row, order)
        if row.first is None:
            self._drop(line, row)
        return was_head

    def _drop(self, line: Line, row: Row) -> None:
        """Nobody is left in the row, and it is in no line any more."""
        self._blocked.drop(row)
        tenant = str(row.key[TENANT])
        del self._of_tenant[tenant][row]
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]
        need = row.rows.need
        if not need.rooms:
            self._needs.pop(need.key, None)
            self._blocked.drop(need)
            self._nowhere.drop(need)
        if not line.rows:
            lines = self._lines[line.queue.name]
            lines.pop(line.tenant, None)

    def started(self, row: Row, many: int = 1) -> None:
        """The first job of the row, which is the first open one of its room, has started; or so many of them."""
        line, orders = row.rows.line, row.orders(many)
        assert len(orders) == many, "they were there to be started"
        for order in orders:
            del self._places[order[-1]]
        self.touched.add(row, line)
        # Where they were heads they keep nothing back any more. Wherever they were, their tenant may be at its limit
        # now: then what waits beside heads waits for that, and no longer for room.
        self.freed += many
        line.pop(row, orders)
        if row.first is None:
            self._drop(line, row)

    def queue(self, name: str | None) -> Queue:
        """The queue of this name, or the first one; one that the cell file no longer has stands behind all others."""
        name = name or self._first
        queue = self._queues.get(name)
        if queue is None:
            # Whatever its name: nobody's text may keep a cell from deciding.
            queue = self._queues[name] = Queue.model_construct(name=name)
        return queue

    def _line(self, queue: Queue, tenant: str) -> Line:
        lines = self._lines.setdefault(queue.name, {})
        line = lines.get(tenant)
        if line is None:
            line = lines[tenant] = Line(queue, tenant, self._made)
        return line

    def _need(self, room: Key, tenant: str) -> Need:
        need = self._needs.get(room)
        if need is None:
            need = self._needs[room] = Need(room, tenant, ask_of(room))
        elif need.owner != tenant:
            need.owner = ""
        return need

    def in_order(self) -> Iterator[list[Line]]:
        """The lines in which somebody waits, queue by queue in the order in which these are walked."""
        last = len(self._numbers)
        for name in sorted(self._lines, key=lambda name: (self._numbers.get(name, last), name)):
            lines = list(self._lines[name].values())
            if lines:
                yield lines

    def tenants(self) -> Iterable[str]:
        """Those of whom somebody waits."""
        return self._of_tenant

    def rows_of(self, tenant: str) -> Iterable[tuple[Row, Line]]:
        """The classes of a tenant's that wait, each with its line."""
        return self._of_tenant.get(tenant, {}).items()

    def place_of(self, job_id: str) -> tuple[Line, Row] | None:
        """Where a job stands, if it does."""
        place = self._places.get(job_id)
        return None if place is None else place[:2]

    def order_of(self, job_id: str) -> Order | None:
        """In which place a job stands, if it does."""
        place = self._places.get(job_id)
        return None if place is None else place[2]

    def next_cell_ms(self, state: CellState) -> int | None:
        """When the pause of a job ends, or a node closes for one that may keep others back."""
        closes_ms = None if self._closing is None else self._closing.next_ms
        lives = _sleeps_in(state)
        while (first := self._asleep.first) is not None:
            if lives(first):
                return first[0] if closes_ms is None else min(first[0], closes_ms)
            self._asleep.pop()
        return closes_ms

    # Who does not fit.

    def block(self, need: Need, row: Row, code: PendingReason) -> None:
        """There is no room for these, as this one of them has found, until something becomes free."""
        if need.code is not code:
            self._blocked.drop(need)
            self._nowhere.drop(need)
            if need.code is not None:
                for rows in need.rooms:
                    rows.line.passed[rows] = None
            ask = need.ask if code in FOR_WANT_OF_GPUS else ANY
            blocked = self._nowhere if code is PendingReason.NO_SUCH_NODES else self._blocked
            blocked.add(need, need.owner, ask, self._place(row))
        need.code = code

    def refuse(self, line: Line, row: Row, code: PendingReason, *, is_shut: bool) -> None:
        """This class waits for something else than room, until something changes. If it is `is_shut`, a walk does not
        come by.
        """
        row.code, row.is_shut = code, is_shut
        if row not in self._blocked:
            self._blocked.add(row, str(row.key[TENANT]), ANY, self._place(row))
        line.moved[row] = None

    def _place(self, row: Row) -> Place:
        assert row.first is not None, "it was looked at"
        return self._numbers.get(row.rows.line.queue.name, len(self._numbers)), row.first

    def walked(self, state: CellState, now_ms: int) -> None:
        """All lines are walked: while maintenance is planned, what keeps a head may change as time passes."""
        self.may_have_waited = False
        self._blocked.walked(_may_fit(state))
        self._closing = None
        if state.maintenance_starts:
            keeping = [line for lines in self._lines.values() for line in lines.values() if line.keeps_order]
            needs = [rows.need for line in keeping for rows in line.by_room.values()]
            self._closing = Closing(state.maintenance_starts.values(), needs, now_ms)

    @property
    def has_blocked(self) -> bool:
        """Whether anybody was found not to fit since something became free."""
        return bool(self._blocked or self._nowhere)

    def keep_under_limits_of(self, state: CellState, started: Collection[str]) -> bool:
        """Whether a class that does not fit may keep others back for another reason than before, since these tenants
        have started something behind it. A limit concerns those under it, and a guarantee everybody.
        """
        if not started or not any(line.keeps_order for lines in self._lines.values() for line in lines.values()):
            return False
        is_of_all = any(cohort.has_guarantees for cohort in state.tree.cohorts.values())
        tops = {top for tenant in started for top in _limits_above(state, tenant)}
        return any(
            _is_blocked(row) and line.keeps_order
            for tenant, rows in self._of_tenant.items()
            if is_of_all or not tops.isdisjoint(_limits_above(state, tenant))
            for row, line in rows.items()
        )

    def _close(self, now_ms: int) -> bool:
        """Try those again for which a node has closed since the last walk. Whether there are any."""
        closing = self._closing
        if closing is None or closing.next_ms is None or closing.next_ms > now_ms:
            return False
        due, self._closing = closing.due(now_ms), None
        self.freed += 1
        for need in due:
            self._blocked.drop(need)
            self._nowhere.drop(need)
            self._open(need)
        return True

    def free(self) -> None:
        """Something has become free, or may be used by others than before."""
        self.freed += 1
        self._blocked.free()

    @property
    def are_due(self) -> bool:
        """Whether some that did not fit are still to be tried again."""
        return self._blocked.are_due or self._nowhere.are_due

    def open_due(self, state: CellState) -> None:
        """Let those be tried again whose turn it is: what no node could hold only when nodes have become others."""
        hardware = marks_of_reach(state)
        if hardware != self._hardware:
            self._hardware = hardware
            self._nowhere.free()
        if self.were_cut and self._have_opened:
            self._have_opened = False  # first those to which the last walk did not come: else they might never be tried
        elif self.are_due:
            self._have_opened = True
            may_fit = _may_fit(state)
            for item in (*self._blocked.take(may_fit), *self._nowhere.take(may_fit)):
                self._open(item)

    def _open(self, item: Need | Row) -> None:
        if isinstance(item, Row):
            was_shut, item.code, item.is_shut = item.is_shut, None, False
            if was_shut:  # it left the walk's way; a refused one that did not stands there still
                item.rows.line.open(item)
            return
        item.code = None
        for rows in item.rooms:
            rows.line.stand(rows)


def _may_fit(state: CellState) -> MayFit:
    """Tells of an ask whether any node has so many GPUs free."""
    known: dict[Ask, bool] = {}
    most: dict[str, int] = {}

    def free_max(pool: str) -> int:
        if pool not in most:
            most[pool] = max(state.pools[pool].by_free, default=0)
        return most[pool]

    def may_fit(ask: Ask) -> bool:
        found = known.get(ask)
        if found is None:
            pools, _, gpus = ask
            names = [name for name in pools or state.pools if name in state.pools]
            found = known[ask] = not gpus or any(free_max(name) >= gpus for name in names)
        return found

    return may_fit


def _is_blocked(row: Row) -> bool:
    """Whether its class was found not to fit."""
    return row.code is not None or row.rows.need.code is not None


def _limits_above(state: CellState, tenant: str) -> set[Account]:
    """The highest accounts by which the use of a tenant that has quotas is limited, one for each GPU type."""
    quotas = state.quotas
    return {accounts(quotas, tenant, each)[-1] for each in state.tree.cohorts if (tenant, each) in quotas}


def _sleeps_in(state: CellState) -> Callable[[tuple[int, str]], bool]:
    """Tells of an entry whether the job still pauses until then."""

    def sleeps(entry: tuple[int, str]) -> bool:
        job = state.jobs.get(entry[1])
        waits = job is not None and (job.status is _QUEUED or lacks(job))
        return job is not None and waits and next_pause_end_ms(job, entry[0] - 1) == entry[0]

    return sleeps
