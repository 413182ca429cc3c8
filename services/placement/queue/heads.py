"""Heads: waiting jobs whose nodes later jobs may not take.

A head is protected from all that a walk comes to behind it: in its own queue, and in the queues behind. It keeps back
only jobs that could be on a node where it could be, by pools, GPU type, labels, taints, size and required place in the
network; so there may be several heads in a queue, each the first of its kind. A job that is kept back on some of its
nodes may start on the others, and is a head of these where they have no room: later jobs do not overtake it there.
Where a limit of its tenant keeps it, it is room below that limit that it needs: then it keeps back only jobs under the
same limit, and these on whatever nodes of that GPU type.

In a strict queue a job is a head as soon as it does not fit. In one that backfills (Kant, without estimates) it is one
too, and jobs behind it in its queue start past it and are marked; when it has been a head for `backfill_wait_ms`
nothing passes it any more. A job that no node could ever hold, that alone is more than its tenant may ever use, or that
its own array keeps back, blocks no other job; one that maintenance keeps blocks at most its own strict queue.

What keeps a head is told by GPU type: one limit may keep it from some, want of room from the others. One code is not
enough for that, and it changes from one moment to the next: so a head has a part for each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from fallow.services.placement.fit.empty_capacity import Reach, marks_of_reach, meet, reach_of, together
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.owners_first import borrows, fits_in, kept_for_it, nodes_of_types
from fallow.services.placement.queue.borrowing_heads import BorrowingHeads
from fallow.services.placement.queue.head_index import NEVER, Age, Block, HeadBlocks, HoldsFor, KeptNodes
from fallow.services.placement.queue.lines.classes import WORKERS, Key, room_of
from fallow.services.placement.queue.lines.closing import next_closing_ms
from fallow.services.placement.queue.lines.row import Need
from fallow.services.placement.queue.reserved import Kept, Reserved
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.services.placement.search.quota_check import is_ever_allowed, waits_by_types
from fallow.services.placement.search.reason_precedence import PRECEDENCE, STRUCTURAL, ReasonKind, is_of_quota
from fallow.shared.cluster.capacity.maintenance import longest_run_ms, shut_for
from fallow.shared.cluster.capacity.masks import mask_from
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.independent_workers import grows, in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.queue_order import Order, order_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import accounts
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.fields.value import replace as changed
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason

PASSES: Final = (ReasonKind.QUOTA, ReasonKind.CAPACITY, ReasonKind.TOPOLOGY)
WAITED_FOR: Final = (
    *(code for code, kind in PRECEDENCE.items() if kind in PASSES),
    PendingReason.RESERVED_FOR_OTHER,
)
"""What passes when others end, so that it helps to keep what becomes free."""

PLAN_WAITS_MAX: Final = 24
"""For so many times `backfill_wait_ms` at most a planned start puts off that nothing passes a head any more."""

COMPARISONS_TO_ASK: Final = 16
"""To ask which heads a job competes with costs as much as to hold it against so many."""

_NO_HEAD: Final = (*STRUCTURAL, PendingReason.ARRAY_LIMIT)


@dataclass(frozen=True, slots=True)
class Head:
    """A job that is the first of its kind not to fit. `reach` is where it could be, or, where a limit keeps it, all
    nodes of the GPU types under that limit; `under` the tenant whose limit it is, None where it is room that is
    missing. `is_due` whether nothing may pass it any more, `is_of_all` whether that holds for the queues behind its own
    too, `is_of_earlier` whether it is one of those walked before, `is_for_owners` whether owners of its own queue may
    pass it: those of a queue that backfills, and those of a strict one while its room is kept for owners.
    `spec` is the job as it stands in line: what of it is to come together next.
    `code` is why it does not fit, for one who reads the log; None where it was not tried yet. With `is_planned` its
    `reach` are the nodes that are kept for its planned start, and a job that is over by then may pass.
    """

    spec: JobSpec
    since_ms: int | None
    reach: Reach
    under: str | None
    is_due: bool
    is_of_all: bool
    is_of_earlier: bool = False
    is_for_owners: bool = False
    is_before_turns: bool = False
    code: PendingReason | None = None
    is_planned: bool = False


class Group(NamedTuple):
    """Jobs from which every head keeps the same: of a tenant that is a head before turns, else of any (""); below these
    tenants whose limits heads wait for; with the guarantees into which they fit, and those for which places are kept.
    """

    tenant: str
    above: tuple[str, ...]
    fits_in: tuple[Account, ...]
    kept_for_it: tuple[Account, ...]


JobClass = tuple[Need, str]
"""The room that jobs need, and their tenant."""


@dataclass(frozen=True, slots=True)
class _Older:
    """Those of the heads that hold for a job of a class of which one keeps its room before all turns: `age` is that of
    this one, or of the oldest of its class, and `is_first` whether it is the job itself.
    """

    heads: Heads
    tenant: str
    age: Age
    is_first: bool

    def of(self, block: Block[Head]) -> bool | None:
        """Whether all heads of a block hold, or none."""
        if self.tenant not in block.tenants:
            return True if block.newest < self.age else False if block.oldest > self.age else None
        return True if self.is_first and block.newest < self.age else None

    def holds(self, head: Head) -> bool:
        """Whether a head holds. What needs the same room as the oldest is kept back by no other tenant of its queue
        that has not waited longer. Until its turn comes such a head keeps back also what comes before it in the line of
        its tenant: that did not wait for the same before this walk.
        """
        if head.is_of_earlier:
            return True
        if head.spec.tenant == self.tenant and not (self.is_first and head.is_before_turns):
            return self.heads.holds_for_own(head)
        return self.heads.age_of(head) < self.age


class Heads:
    """The heads that a walk has met so far, and that hold in the queue at which it is."""

    __slots__ = (
        "_above",
        "_before_turns",
        "_borrowing",
        "_cut",
        "_due",
        "_first",
        "_first_of_tenant",
        "_groups",
        "_has_borrowers",
        "_has_limits",
        "_has_reserved",
        "_is_by_tenant",
        "_marks",
        "_now_ms",
        "_numbers",
        "_of_class",
        "_others",
        "_shut",
        "_state",
        "_to_come",
        "reserved",
    )

    def __init__(self, state: CellState, now_ms: int, reserved: Reserved | None = None) -> None:
        """`reserved` is what is kept for planned starts."""
        self._state, self._now_ms = state, now_ms
        self.reserved = Reserved(state, {}, now_ms) if reserved is None else reserved
        self._above: dict[JobClass, tuple[str, ...]] = {}
        self._marks: list[object] = []
        self._shut: Shut = {}
        self._begin()

    def _begin(self) -> None:
        """There are no heads yet in the queue to which the walk comes."""
        effort = self._state.capacity.effort
        self._due, self._others = HeadBlocks[Head](effort), HeadBlocks[Head](effort)
        self._numbers: dict[str, list[int]] = {}
        self._groups: dict[Group, tuple[KeptNodes[Head], KeptNodes[Head]]] = {}
        self._borrowing = BorrowingHeads(self._state)
        self._is_by_tenant = self._has_limits = self._has_reserved = self._has_borrowers = False
        self._before_turns: dict[JobClass, str] = {}
        self._first: dict[str, JobClass] = {}
        self._first_of_tenant: dict[str, int] = {}
        self._of_class: dict[JobClass, dict[str, None]] = {}
        self._cut: dict[str, Reach] = {}
        self._to_come: dict[str, None] = {}

    def next_queue(self) -> None:
        """The walk is over with a queue."""
        lasting = [head for head in self._due if head.is_of_all]
        self._begin()
        for head in lasting:
            self._put(replace(head, is_of_earlier=True, is_before_turns=False))

    def _put(self, head: Head) -> None:
        heads = self._due if head.is_due else self._others
        number = heads.add(head, head.spec.tenant, self.age_of(head))
        if head.is_due:
            self._numbers.setdefault(head.spec.id, []).append(number)
        if self._state.quotas and _may_be_passed(head):
            self._has_borrowers = True
            self._borrowing.add(head.spec, (head.is_due, number))
        self._is_by_tenant = self._is_by_tenant or self.is_by_tenant(head)
        self._has_limits |= head.under is not None
        self._has_reserved |= head.code is PendingReason.RESERVED_FOR_OTHER

    @property
    def are_by_tenant(self) -> bool:
        """Whether who is kept back goes by whose job it is, too."""
        return self._is_by_tenant

    def is_by_tenant(self, head: Head) -> bool:
        """Whether the tenant of a job decides, too, whether this head keeps it back."""
        is_by_quota = _may_be_passed(head) and bool(self._state.quotas)
        return head.under is not None or head.is_before_turns or is_by_quota

    def over(self, need: Need, spec: JobSpec) -> Head | None:
        """The head that this job would be started past, because it could use what that one needs; one that is due
        before all others. None where there is none.
        """
        if not (self._due.size or self._others.size):
            return None
        reach, holding = self.reach(need, spec), self._holding_for(need, spec)
        due, others = self._kept_from(need, spec, holding)
        return due.first(reach, holding) or others.first(reach, holding)

    def _kept_from(
        self, need: Need, spec: JobSpec, holding: HoldsFor[Head] | None
    ) -> tuple[KeptNodes[Head], KeptNodes[Head]]:
        """What the heads keep from such jobs, due ones and others."""
        self._state.capacity.effort.comparisons += COMPARISONS_TO_ASK
        return self._kept_from_group(self._group_of(need, spec, holding))

    def _kept_from_group(self, group: Group) -> tuple[KeptNodes[Head], KeptNodes[Head]]:
        known = self._groups.get(group)
        if known is None:
            keeps, tenant = partial(self._keeps, group), group.tenant
            of_any = self._kept_from_group(group._replace(tenant="")) if tenant else (None, None)
            of_due, of_others = (None if each is None else (each, tenant) for each in of_any)
            kept = KeptNodes(self._due, keeps, of_due), KeptNodes(self._others, keeps, of_others)
            known = self._groups[group] = kept
        return known

    def _group_of(self, need: Need, spec: JobSpec, holding: HoldsFor[Head] | None) -> Group:
        above, owned, kept = tuple[str, ...](), tuple[Account, ...](), tuple[Account, ...]()
        if self._has_limits:
            job_class = (need, spec.tenant)
            if job_class not in self._above:
                self._above[job_class] = _above(self._state, spec)
            above = self._above[job_class]
        if self._state.quotas:
            lined = _lined(need, spec)
            owned = tuple(fits_in(self._state, lined).values())
            kept = tuple(kept_for_it(self._state, lined)) if self._has_reserved else ()
        is_own = holding is None and spec.tenant in self._first_of_tenant
        return Group(spec.tenant if is_own else "", above, owned, kept)

    def _keeps(self, group: Group, head: Head) -> Reach:
        """What a head keeps from the jobs of a group."""
        if head.under is not None and head.under not in group.above:
            return {}
        if head.spec.tenant == group.tenant and not self.holds_for_own(head):
            return {}
        return _left_to(self._state, head, group.fits_in, group.kept_for_it, self._borrowing.borrows)

    def holds_for_own(self, head: Head) -> bool:
        """Whether a head holds for jobs of its own tenant: before its turn comes, and as one that has met no room."""
        return not head.is_before_turns or head.spec.id in self._to_come

    def age_of(self, head: Head) -> Age:
        """Since when a head waits, as far as others go by that: one of an earlier queue comes before all, and one that
        may be passed behind all.
        """
        if head.is_of_earlier:
            return -1, 0
        if not head.is_due or head.since_ms is None:
            return NEVER
        return head.since_ms, self._state.jobs[head.spec.id].number

    def _holding_for(self, need: Need, spec: JobSpec) -> HoldsFor[Head] | None:
        """Which heads hold for a job that keeps its room before all turns, or needs the room that such a one needs;
        None of all others, for which those of its group do.
        """
        is_first = spec.id in self._first
        oldest = spec.id if is_first else self._before_turns.get((need, spec.tenant))
        return None if oldest is None else _Older(self, spec.tenant, self._waits_since(oldest), is_first)

    def kept_by(self, job: Job, need: Need, code: PendingReason | None) -> Reach:
        """The nodes of which a job waits for any as a head, whether or not it is one, if this is why it does not fit:
        those where it could be, or all of the GPU types under its limit; none where it alone is more than its tenant
        may ever use, whatever it was told.
        """
        found: Reach = {}
        if not is_ever_allowed(self._state, job):
            return found
        for part in _kept_for(self._state, in_line(job), self.reach(need, job.spec), code, self._shut):
            found = together(found, part.reach)
        return found

    def room_before_turns(self, job: Job, need: Need) -> Reach:
        """Where this head, which is due, may keep what it waits for whichever tenant has the turn: beside what others
        keep that come before it.
        """
        holding = _Older(self, job.spec.tenant, self._waits_since(job.spec.id), is_first=True)
        return self._kept_from(need, job.spec, holding)[0].beside(self.reach(need, job.spec), holding)

    def add_before_turns(self, job: Job, need: Need, code: PendingReason | None, room: Reach | None = None) -> None:
        """By shares the turn of this head, which is due, may come behind that of any other tenant: from these what it
        waits for is kept before, or its room where it may start now (`code` is None); within this `room`.
        """
        if is_ever_allowed(self._state, job):
            since_ms, spec = self._state.heads[job.spec.id], in_line(job)
            reach = self.reach(need, job.spec)
            if room is not None and room != reach:
                self._cut[job.spec.id], reach = reach, room
            for part in _kept_for(self._state, spec, reach, code, self._shut):
                head = Head(spec, since_ms, part.reach, part.under, is_due=True, is_of_all=True, code=part.code)
                self._put(replace(head, is_for_owners=True, is_before_turns=True))
            self._first[job.spec.id] = (need, job.spec.tenant)
            self._first_of_tenant[job.spec.tenant] = self._first_of_tenant.get(job.spec.tenant, 0) + 1
            self._to_come[job.spec.id] = None
            self._note_oldest(job.spec.id)

    def started(self, job_id: str) -> bool:
        """A job of this queue starts. Whether it kept its room from other tenants: then another head may do so now, and
        those that did so beside it are to be added anew.
        """
        if job_id not in self._first:
            return False
        own = [head.reach for head in self._of_job(job_id)]
        again = [each for each, reach in self._cut.items() if each == job_id or any(meet(reach, kept) for kept in own)]
        for each in again:
            del self._cut[each]
        self._leave(job_id, is_whole=True)
        for each in again:
            self._leave(each, is_whole=False)
        return True

    def _of_job(self, job_id: str) -> list[Head]:
        found = [self._due.get(number) for number in self._numbers.get(job_id, ())]
        return [head for head in found if head is not None]

    def _leave(self, job_id: str, *, is_whole: bool) -> None:
        """A job keeps its room before all turns no more, nor (`is_whole`) after its own turn."""
        job_class = self._first.pop(job_id, None)
        if job_class is None:
            return
        gone, left = list[int](), list[int]()
        for number in self._numbers.pop(job_id, ()):
            head = self._due.get(number)
            is_gone = head is None or is_whole or head.is_before_turns
            (gone if is_gone else left).append(number)
        if left:
            self._numbers[job_id] = left
        for number in gone:
            self._due.remove(number)
        self._forget(gone)
        self._first_of_tenant[job_class[1]] -= 1
        if not self._first_of_tenant[job_class[1]]:
            del self._first_of_tenant[job_class[1]]
        others = self._of_class[job_class]
        del others[job_id]
        self._before_turns.pop(job_class)
        if others:
            self._before_turns[job_class] = min(others, key=self._waits_since)

    def _forget(self, numbers: Iterable[int], tenant: str | None = None) -> None:
        """Due heads with these numbers are gone, or keep another thing from jobs of their own tenant."""
        for group, (due, _) in self._groups.items():
            if tenant in (None, group.tenant):
                for number in numbers:
                    due.forget(number)

    def usage_changed(self, tenant: str) -> None:
        """A job of this tenant has started: heads may borrow now from tenants from which they could not before."""
        if not self._has_borrowers:
            return
        for is_due, number in self._borrowing.started(tenant):
            for group, (due, others) in self._groups.items():
                if group.fits_in or group.kept_for_it:
                    (due if is_due else others).forget(number)

    def _note_oldest(self, job_id: str) -> None:
        """Of the heads before all turns of one class, the one that has waited longest speaks for all of the class."""
        job_class = self._first[job_id]
        self._of_class.setdefault(job_class, {})[job_id] = None
        self._before_turns[job_class] = min(self._before_turns.get(job_class, job_id), job_id, key=self._waits_since)

    def _waits_since(self, job_id: str) -> Age:
        return self._state.heads.get(job_id, self._now_ms), self._state.jobs[job_id].number

    @property
    def are_before_turns(self) -> bool:
        """Whether any job keeps its room so."""
        return bool(self._first)

    def any_before_turns_of(self, tenant: str) -> bool:
        """Whether any job of this tenant does."""
        return tenant in self._first_of_tenant

    def is_before_turns(self, job_id: str) -> bool:
        """Whether this job keeps its room from other tenants of its queue whichever tenant has the turn."""
        return job_id in self._first

    def room_beside(self, need: Need, spec: JobSpec) -> Reach:
        """Where the job could be and takes from no head that it may not be started past what that one waits for."""
        holding = self._holding_for(need, spec)
        return self._kept_from(need, spec, holding)[0].beside(self.reach(need, spec), holding)

    def add(
        self,
        job: Job,
        need: Need,
        code: PendingReason,
        discipline: QueueDiscipline,
        like: Sequence[str],
        beside: Reach | None = None,
    ) -> bool:
        """This job of a queue that is strict or backfills does not fit, or where another head keeps it back, does not
        fit `beside` that. Whether it is a head by that; it is none of those that `over` names for others. `like` are
        the heads of its queue that wait for this room, be it one: it has waited as long as they have, and may be passed
        no more when one of them may not.
        """
        is_strict = discipline is QueueDiscipline.STRICT_FIFO
        if job.spec.id in self._to_come:
            del self._to_come[job.spec.id]
            self._forget(self._numbers.get(job.spec.id, ()), job.spec.tenant)
        if code in STRUCTURAL or not (is_strict or code in WAITED_FOR):
            return False
        if not is_ever_allowed(self._state, job):
            return False
        since_ms = min([self._state.heads[each] for each in like], default=self._now_ms)
        is_due_now = is_strict or is_due_with(self._state, job, like, self._now_ms)
        reach = self.reach(need, job.spec) if beside is None else beside
        is_of_all, spec = code in WAITED_FOR, in_line(job)
        for part in _kept_for(self._state, spec, reach, code, self._shut):
            head = Head(spec, since_ms, part.reach, part.under, is_due_now, is_of_all, code=part.code)
            self._put(replace(head, is_for_owners=part.is_for_owners or not is_strict))
        return True

    def closes_ms(self) -> int | None:
        """When the next node closes for one of the heads of this walk, which does not keep it from then on; None where
        none does.
        """
        begins = sorted(set(self._state.maintenance_starts.values()))
        found = [next_closing_ms(begins, run_ms, self._now_ms) for run_ms in {run_ms for _, run_ms in self._shut}]
        return min((at_ms for at_ms in found if at_ms is not None), default=None)

    def reach(self, need: Need, spec: JobSpec) -> Reach:
        """Where the job could be: the same for all that need the same room, until a node becomes another one."""
        if not self._marks:
            self._marks = marks_of_reach(self._state)
        if need.reach is None or need.reach[0] != self._marks:
            need.reach = (self._marks, reach_of(self._state, _lined(need, spec)))
        return need.reach[1]


def _lined(need: Need, spec: JobSpec) -> JobSpec:
    """The job as it stands in line: one that is no gang with as many workers as it needs at least."""
    fewest = need.key[WORKERS]
    return spec if spec.gang else changed(spec, workers=fewest, workers_min=fewest)


def is_due(state: CellState, job: Job, since_ms: int, now_ms: int) -> bool:
    """Whether a head of a queue that backfills has waited for so long that nothing may pass it any more. One for which
    places are kept is waited for with these alone until its first planned start is over, but not for long: one run that
    says how long it takes, and takes very long, makes a planned start far away, though all else may end much sooner.
    """
    kept, wait_ms = state.reservations.get(job.spec.id), state.policy.backfill_wait_ms
    if kept is not None and kept.workers and kept.first_ms is not None:
        wait_ms = max(wait_ms, min(kept.first_ms - since_ms, PLAN_WAITS_MAX * wait_ms))
    return now_ms - since_ms >= wait_ms


def is_due_with(state: CellState, job: Job, like: Sequence[str], now_ms: int) -> bool:
    """Like is_due, for a job that inherits the wait of similar heads: it is due as soon as one of them is."""
    heads = {each: state.heads[each] for each in like}
    by_own = any(is_due(state, state.jobs[each], since_ms, now_ms) for each, since_ms in heads.items())
    return by_own or is_due(state, job, min(heads.values(), default=now_ms), now_ms)


def _keeps_back(state: CellState, spec: JobSpec, reach: Reach, head: Head) -> bool:
    """Whether the job could use what the head needs, and may not."""
    if head.under is not None and not _is_below(state, spec, head.under):
        return False
    owned = tuple(fits_in(state, spec).values())
    return meet(reach, _left_to(state, head, owned, kept_for_it(state, spec), partial(borrows, state)))


def _may_be_passed(head: Head) -> bool:
    """Whether a head lets owners pass."""
    return head.is_of_earlier or head.is_for_owners


def _left_to(
    state: CellState,
    head: Head,
    fits: Sequence[Account],
    kept: Sequence[Account],
    borrows_from: Callable[[JobSpec, Account], bool],
) -> Reach:
    """The nodes of a head on which jobs that fit into these guarantees, and for which these have places `kept`, may not
    be started past it: all of its nodes, except where it is of an earlier queue, or lets owners of its own queue pass,
    which would else wait behind it while it waits for them. Of a GPU type that such a head would borrow a job may take
    what is guaranteed to its tenant, or to one above it, if it fits into that whole, or if the head waits for
    nothing but what is kept for that tenant.
    """
    if not (state.quotas and _may_be_passed(head)):
        return head.reach
    by_kept = kept if head.code is PendingReason.RESERVED_FOR_OTHER else ()
    owned = [account[1] for account in (*fits, *by_kept) if borrows_from(head.spec, account)]
    if not owned:
        return head.reach
    return {name: mask & ~nodes_of_types(state, name, owned) for name, mask in head.reach.items()}


def head_before(
    state: CellState,
    job: Job,
    before: Sequence[Job],
    queue: Queue,
    earlier: Sequence[Queue],
    now_ms: int,
    *,
    has_room: bool,
) -> Head | None:
    """The head that keeps this waiting job back, as far as the log tells: one of those `before` it in its queue, or
    else one of the queues that are walked `earlier`. A head that waits for room of its own is kept back by no other one
    of its own queue; one that has room (`has_room`: nothing else keeps it), by those that are due and have waited
    longer, or, where the queue goes not by shares, come before it.
    """
    is_head = job.spec.id in state.heads and job.deferred is not PendingReason.BEHIND_HEAD
    reach, first_name = reach_of(state, in_line(job)), (*earlier, queue)[0].name
    known = _Known(state, first_name, now_ms)
    waiting = [other for other in state.jobs.values() if other.status is JobStatus.QUEUED]
    growing = [other for other in state.jobs.values() if grows(other, now_ms)]
    heads: list[Head] = []
    if not is_head:
        running = _before(queue, _of_queue(queue, first_name, growing), job)
        heads += _behind_others_last(known.in_own(queue, before) + known.of_growing(queue, running))
    elif has_room:
        first = _heads_first(state, job, before, queue, _of_queue(queue, first_name, waiting))
        heads += _behind_others_last(known.in_other(queue, first))
    for each in earlier:
        found = known.in_other(each, _of_queue(each, first_name, waiting))
        found += known.of_growing(each, _of_queue(each, first_name, growing))
        heads += [replace(head, is_of_earlier=True) for head in _behind_others_last(found)]
    keeper = next((head for head in heads if _keeps_back(state, in_line(job), reach, head)), None)
    return keeper or _planned_before(state, job, (*earlier, queue), reach, now_ms)


def _heads_first(
    state: CellState, head: Job, before: Sequence[Job], queue: Queue, waiting: Sequence[Job]
) -> Sequence[Job]:
    """Those of the jobs `before` a head of this queue that may keep it off; by shares those of all that are `waiting`
    in it that have been heads for longer, whose turn may come first since what stands before them finds no room, and
    those of its own tenant that stand before it, however long they have been heads.
    """
    if queue.order is not QueueOrder.FAIR_SHARE:
        return before
    mine, place = (state.heads[head.spec.id], head.number), _place_in(queue, head)
    return [
        each
        for each in waiting
        if each.id in state.heads
        and (
            (state.heads[each.id], each.number) < mine
            or (each.spec.tenant == head.spec.tenant and _place_in(queue, each) < place)
        )
    ]


def _planned_before(state: CellState, job: Job, queues: Sequence[Queue], reach: Reach, now_ms: int) -> Head | None:
    """The first job with a planned start whose nodes this one, of the last of these queues, may not take until then."""
    if job.spec.id in state.reservations or not state.reservations:
        return None
    by_name = {queue.name: queue for queue in queues}
    names = {job_id: state.jobs[job_id].spec.queue or queues[0].name for job_id in state.reservations}
    reserved = Reserved(state, {job_id: by_name[name] for job_id, name in names.items() if name in by_name}, now_ms)
    for queue in queues:
        reserved.enter(queue)
    off, kept = reserved.kept_from(job, _place_in(queues[-1], job))
    return reserved_head(state, kept) if kept is not None and meet(off, reach) else None


def reserved_head(state: CellState, kept: Kept) -> Head:
    """A job with a planned start, as a head that may not be passed on the nodes that are kept for it."""
    spec = kept.job.spec
    since_ms, code = state.heads.get(spec.id), kept.job.deferred
    return Head(spec, since_ms, kept.reach, None, is_due=True, is_of_all=True, code=code, is_planned=True)


def _behind_others_last(heads: list[Head]) -> list[Head]:
    """Those that wait for something before those that only stand behind another head themselves."""
    return sorted(heads, key=lambda head: head.code in (PendingReason.BEHIND_HEAD, None))


def _of_queue(queue: Queue, first: str, jobs: Sequence[Job]) -> list[Job]:
    """Those of a queue; a job that names none is in the first one."""
    return [job for job in jobs if (job.spec.queue or first) == queue.name]


def _before(queue: Queue, running: Sequence[Job], behind: Job) -> list[Job]:
    """Those of a queue's running jobs whose turn may come before this job's: by shares, each of them."""
    if queue.order is QueueOrder.FAIR_SHARE:
        return list(running)
    place = _place_in(queue, behind)
    return [job for job in running if _place_in(queue, job) < place]


class _Like(NamedTuple):
    """Since when the heads that are like each other wait, and whether one of them may be passed no more."""

    since_ms: int
    is_due: bool


class _Known:
    """The heads that no job may pass now, for one who reads the log."""

    def __init__(self, state: CellState, first_name: str, now_ms: int) -> None:
        """`first_name` is the queue of jobs that name none."""
        self._state, self._first_name, self._now_ms = state, first_name, now_ms
        self._reaches: dict[Key, Reach] = {}
        self._like: dict[tuple[str, Key, str], _Like] | None = None
        self._shut: Shut = {}

    def in_own(self, queue: Queue, before: Sequence[Job]) -> list[Head]:
        """Those of a job's own queue. In a strict one every job before it counts, told why it waits or not yet."""
        if queue.discipline is not QueueDiscipline.STRICT_FIFO:
            return self.in_other(queue, before)
        found = [other for other in before if other.deferred not in _NO_HEAD]
        able = [other for other in found if is_ever_allowed(self._state, other)]
        return [head for other in able for head in self._heads(other, other.deferred, queue)]

    def in_other(self, queue: Queue, waiting: Sequence[Job]) -> list[Head]:
        """Those of a queue of which these jobs wait."""
        codes = (*WAITED_FOR, PendingReason.BEHIND_HEAD)
        found = [each for each in waiting if each.deferred in codes and is_ever_allowed(self._state, each)]
        if queue.discipline is QueueDiscipline.BEST_EFFORT_FIFO:
            return []
        if queue.discipline is QueueDiscipline.BACKFILL:
            found = [each for each in found if each.id in self._state.heads]
            found = [each for each in found if self._is_due(queue, each)]
        found.sort(key=lambda each: _place_in(queue, each))
        return [head for other in found for head in self._heads(other, other.deferred, queue)]

    def _is_due(self, queue: Queue, job: Job) -> bool:
        """As `is_due_with`, with each head that is like others looked at once for all of them."""
        like = self._like_in(queue, job)
        return like is not None and (like.is_due or is_due(self._state, job, like.since_ms, self._now_ms))

    def _like_in(self, queue: Queue, job: Job) -> _Like | None:
        """The heads of a queue, by shares those of the job's tenant, that wait for the same room as this job; None if
        there are none.
        """
        if self._like is None:
            self._like = {}
            for job_id, since_ms in self._state.heads.items():
                other = self._state.jobs[job_id]
                name, key = other.spec.queue or self._first_name, room_of(self._state, in_line(other))
                is_due_now = is_due(self._state, other, since_ms, self._now_ms)
                for tenant in ("", other.spec.tenant):
                    known = self._like.get((name, key, tenant), _Like(since_ms, is_due=False))
                    self._like[name, key, tenant] = _Like(min(known.since_ms, since_ms), known.is_due or is_due_now)
        tenant = job.spec.tenant if queue.order is QueueOrder.FAIR_SHARE else ""
        return self._like.get((queue.name, room_of(self._state, in_line(job)), tenant))

    def of_growing(self, queue: Queue, growing: Sequence[Job]) -> list[Head]:
        """Those of a queue that run and for whose further workers there is no room: in a strict one they keep back who
        comes behind them.
        """
        if queue.discipline is not QueueDiscipline.STRICT_FIFO:
            return []
        found: list[Head] = []
        for each in growing:
            code = places_to_enter(self._state, each, self._now_ms)
            if isinstance(code, PendingReason) and code not in _NO_HEAD and is_ever_allowed(self._state, each):
                found += self._heads(each, code, queue)
        return found

    def _heads(self, job: Job, code: PendingReason | None, queue: Queue) -> list[Head]:
        spec = in_line(job)
        key = room_of(self._state, spec)
        reach = self._reaches.get(key)
        if reach is None:
            reach = self._reaches[key] = reach_of(self._state, spec)
        backfills = queue.discipline is QueueDiscipline.BACKFILL
        like = self._like_in(queue, job) if backfills else None
        since_ms = None if like is None else like.since_ms
        parts = _kept_for(self._state, spec, reach, code, self._shut)
        heads = [
            Head(spec, since_ms, part.reach, part.under, is_due=True, is_of_all=True, code=part.code) for part in parts
        ]
        passes = [backfills or part.is_for_owners for part in parts]
        return [replace(head, is_for_owners=is_passed) for head, is_passed in zip(heads, passes, strict=True)]


def _place_in(queue: Queue, job: Job) -> Order:
    return order_in(queue, job.spec, job.submit_ms, job.number)


Shut = dict[tuple[str, int], int]
"""The nodes of a pool whose maintenance begins before a run of so many milliseconds would be over, as a mask."""


class _HeadPart(NamedTuple):
    """The nodes that a head keeps for one reason, which its `code` tells: `under` whose limit it waits, None where that
    is for room; and whether owners may pass it there (`is_for_owners`), since what it waits for is there beside
    guarantees.
    """

    under: str | None
    reach: Reach
    is_for_owners: bool
    code: PendingReason | None


def _kept_for(state: CellState, spec: JobSpec, reach: Reach, code: PendingReason | None, shut: Shut) -> list[_HeadPart]:
    """The parts of a head which could be on these nodes (`reach`), by what keeps it of each GPU type. Where quotas keep
    it of one that are all of its nodes: whatever runs on one of them takes from what is left below the limit, or to
    all. Where they do not, it is room that it waits for, though the reason that was told is another one; or the places
    that are kept for owners, which is told before any quota.
    """
    if state.maintenance_starts and code is not PendingReason.MAINTENANCE:
        reach = _without_closing(state, spec, reach, shut)
    is_kept = code is PendingReason.RESERVED_FOR_OTHER
    if not (is_kept or is_of_quota(code)):
        return [_HeadPart(None, reach, False, code)]
    waits = waits_by_types(state, spec)
    if is_kept and len(waits.room) == len(types_for(state, spec)):
        return [_HeadPart(None, reach, True, code)]
    of_quota = PendingReason.QUOTA_REACHED if is_kept else code
    parts = [_HeadPart(under, _of_types(state, types), False, of_quota) for under, types in waits.under.items()]
    parts.append(_HeadPart(None, _of_types(state, waits.to_all), True, of_quota))
    parts.append(_HeadPart(None, _within_types(state, spec, reach, waits.room), is_kept, code))
    return [part for part in parts if reach and part.reach]


def _without_closing(state: CellState, spec: JobSpec, reach: Reach, shut: Shut) -> Reach:
    """Without the nodes whose maintenance the head would meet: it waits for others, and what is over before the
    maintenance begins takes nothing from it there.
    """
    run_ms = longest_run_ms(state, spec)
    for name in reach:
        if (name, run_ms) not in shut:
            pool = state.pools[name]
            shut[name, run_ms] = mask_from([pool.number(each) for each in shut_for(state, pool, spec)], len(pool.ids))
    return {name: left for name, mask in reach.items() if (left := mask & ~shut[name, run_ms])}


def _of_types(state: CellState, types: Sequence[str]) -> Reach:
    """All nodes of the cell with GPUs of these types."""
    return {name: mask for name in state.pools if (mask := nodes_of_types(state, name, types))} if types else {}


def _within_types(state: CellState, spec: JobSpec, reach: Reach, types: Sequence[str]) -> Reach:
    """Those of the nodes where the job could be if it may have one of these types only, all of it."""
    found: Reach = {}
    for each in types:
        typed = reach_of(state, changed(spec, gpu_type=each)) if spec.gang else reach
        for name, mask in typed.items():
            if within := mask & reach.get(name, 0) & nodes_of_types(state, name, (each,)):
                found[name] = found.get(name, 0) | within
    return found


def _is_below(state: CellState, spec: JobSpec, tenant: str) -> bool:
    return tenant in _above(state, spec)


def _above(state: CellState, spec: JobSpec) -> tuple[str, ...]:
    """The job's tenant and those above it that have an account of a type that it could get."""
    lines = (accounts(state.quotas, spec.tenant, each) for each in types_for(state, spec))
    return tuple({spec.tenant: None, **{account[0]: None for line in lines for account in line}})
