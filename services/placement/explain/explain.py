"""Why a waiting job does not start: every reason that holds now, with its numbers, and who is ahead.

Computed when somebody reads, from the state alone. What placement recorded is the code of its last look; this tells
what the job would meet now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from fallow.services.placement.explain.before_turns import head_before_turns
from fallow.services.placement.explain.capacity import PoolRoom, pool_room
from fallow.services.placement.explain.fair_share import TenantShare, share_of
from fallow.services.placement.explain.queue_position import jobs_before
from fallow.services.placement.explain.shortfall import shortfall
from fallow.services.placement.fit.empty_capacity import waits_for_closed
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.owners import Owners
from fallow.services.placement.queue.heads import head_before
from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.gang import Places, bytes_needed, place_gang
from fallow.services.placement.search.partial_start import places_to_enter
from fallow.services.placement.search.reason_precedence import PRECEDENCE, STRUCTURAL, ReasonKind
from fallow.services.placement.search.unacknowledged_starts import with_confirmations
from fallow.services.placement.search.walled_off import walled_off
from fallow.shared.cluster.capacity.constraints import wrong_kind
from fallow.shared.cluster.capacity.hardware import CLOSED
from fallow.shared.cluster.capacity.maintenance import shut_for
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.dependencies import is_known
from fallow.shared.cluster.model.independent_workers import grows, in_line
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.room import rooms
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason, PreemptionCause

NAMED_MAX = 5
"""So many of the jobs ahead are named."""

UNITS_LOOKED_AT_MAX = 1_000
FOR_WANT_OF_NODES = (ReasonKind.STRUCTURAL, ReasonKind.CAPACITY, ReasonKind.TOPOLOGY)
OF_ROOM = (ReasonKind.CAPACITY, ReasonKind.TOPOLOGY)
NOT_IN_LINE = (
    PendingReason.HELD,
    PendingReason.AFTER,
    PendingReason.NOT_BEFORE,
    PendingReason.BACKOFF,
    PendingReason.MAKING_ROOM,
)
"""With these a job is not in line yet: whether there would be room for it is the smaller question."""


@dataclass(frozen=True, slots=True)
class AccountUse:
    """One account that a start would charge, in milli-GPUs. `limit` None: no limit of its own. `room` is how much more
    may start by its limit and its right to borrow; None: neither binds.
    """

    tenant: str
    gpu_type: str
    used_milli: int
    guaranteed_milli: int
    limit_milli: int | None
    wanted_milli: int
    room_milli: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the start would pass the limit, or the right to borrow."""
        return self.room_milli is not None and self.wanted_milli > self.room_milli

    @property
    def to_free(self) -> str | None:
        """For people: by how much its use would have to fall, where a limit keeps the job; or that it cannot."""
        if self.room_milli is None or not self.is_over:
            return None
        if self.limit_milli is not None and self.wanted_milli > self.limit_milli:
            of = f"the limit of {self.tenant} is {self.limit_milli / GPU:g} {self.gpu_type}"
            return f"{of}; the job needs {self.wanted_milli / GPU:g}"
        return f"{(self.wanted_milli - self.room_milli) / GPU:g} {self.gpu_type} less in use by {self.tenant}"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The jobs before this one in its queue: how many, what they want in all, and the first of them in their order.
    `share` is that of its tenant, where the queue goes by shares. The `stuck` ones stand apart: they wait for another
    cluster (`no_such_nodes`), and so take nothing from this job.
    """

    queue: str
    jobs: int
    gpus_milli: int
    first: tuple[str, ...]
    share: TenantShare | None = None
    stuck_jobs: int = 0
    stuck_gpus_milli: int = 0


@dataclass(frozen=True, slots=True)
class Behind:
    """The head that this job may not pass, and since when it is one, where the log says. `queue` is that of the head,
    which may be walked before the job's own. It waits, by `code`, for `gpus_milli` in one of the
    `pools`; or within the quota of the tenant `under`, where that is what keeps it.
    """

    job: str
    since_ms: int | None
    queue: str
    discipline: QueueDiscipline
    code: PendingReason | None
    gpus_milli: int
    pools: tuple[str, ...]
    under: str | None = None
    planned_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """When the job is planned to start, by estimates of how long others run, and the nodes that are kept for it."""

    start_ms: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """The room that is held for the job: by which rule others yield, the nodes, those that have still to leave, and
    until when it is held.
    """

    cause: PreemptionCause
    nodes: tuple[str, ...]
    leaving: tuple[str, ...]
    until_ms: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """`recorded` is what the log says, `codes` what holds now, in the order of precedence: none if it could start.
    `head_since_ms` tells that this job is itself a head that others are to wait for; `to_free` says what would have
    to become free at least: below limits, and in each pool by itself. `needs_bytes` is what its places would take in
    the record of its start, where that is too much. `held_why` is why it is held, if no person wished so. Where it
    waits for want of nodes, `away` are those that are lost or silent, and `changed` the first of those that have other
    hardware than before and take nothing new until what runs there has left, and `to_open` the first of those that a
    person has closed and that it cannot do without. `unknown` are those of `waits_for` that the cell does not know, and
    `elsewhere` the pools that it may not use and that have idle GPUs, with how many.
    """

    job: str
    recorded: PendingReason | None
    codes: tuple[PendingReason, ...]
    pools: tuple[PoolRoom, ...]
    accounts: tuple[AccountUse, ...]
    ahead: Ahead
    not_before_ms: int | None
    waits_for: tuple[str, ...] = ()
    behind: Behind | None = None
    head_since_ms: int | None = None
    to_free: tuple[str, ...] = ()
    closing: tuple[tuple[str, int], ...] = ()
    needs_bytes: int | None = None
    away: tuple[Node, ...] = ()
    held_why: str = ""
    changed: tuple[str, ...] = ()
    to_open: tuple[str, ...] = ()
    planned: Planned | None = None
    unknown: tuple[str, ...] = ()
    elsewhere: tuple[tuple[str, int], ...] = ()
    making_room: MakingRoom | None = None


def why_not(state: CellState, job: Job, queues: Sequence[Queue], now_ms: int) -> WhyNot:
    """Why this waiting job does not start at `now_ms` (cell time). `queues` are those of the cell file; one that is not
    among them is best-effort.
    """
    spec, queue = in_line(job), _queue_of(job.spec, queues)
    pools = tuple(pool_room(state, name, spec) for name in spec.pools or sorted(state.pools))
    used = _accounts(state, spec, pools)
    before = jobs_before(state, job, queue, now_ms)
    found = dict.fromkeys(_capacity(state, job, pools, used, now_ms))
    if job.status is JobStatus.HELD:
        found[PendingReason.HELD] = None
    if job.status is JobStatus.AWAITING or job.waits_for:
        found[PendingReason.AFTER] = None
    if job.not_before_ms > now_ms:
        found[PendingReason.NOT_BEFORE if job.not_before_ms == spec.not_before_ms else PendingReason.BACKOFF] = None
    if not may_start_one_more(state, spec):
        found[PendingReason.ARRAY_LIMIT] = None
    if spec.id in state.rooms:
        found[PendingReason.MAKING_ROOM] = None
    behind = _behind(state, job, before, queues, now_ms, has_room=not found)
    if behind is not None:
        found[PendingReason.BEHIND_HEAD] = None
    codes = in_order(found)
    return WhyNot(
        job=spec.id,
        recorded=job.deferred,
        codes=codes,
        pools=pools,
        accounts=used,
        ahead=_ahead(state, job, before, queue, now_ms),
        not_before_ms=job.not_before_ms or None,
        waits_for=job.waits_for,
        behind=behind,
        head_since_ms=state.heads.get(spec.id),
        to_free=_to_free(state, spec, codes, used, pools),
        to_open=_to_open(state, job),
        closing=_closing(state, spec),
        needs_bytes=bytes_needed(state, spec) if PendingReason.RECORD_TOO_LARGE in codes else None,
        away=_away(state, spec, (*codes, job.deferred)),
        held_why=job.held_why,
        changed=_changed(state, spec, (*codes, job.deferred)),
        planned=_planned(state, spec.id),
        unknown=tuple(waited for waited in job.waits_for if not is_known(state, waited)),
        elsewhere=_elsewhere(state, spec, codes),
        making_room=_making_room(state, spec.id),
    )


def _planned(state: CellState, job_id: str) -> Planned | None:
    """The planned start of a job; None where none is known."""
    kept = state.reservations.get(job_id)
    return None if kept is None else Planned(kept.start_ms, tuple(dict.fromkeys(place.node for place in kept.workers)))


def _making_room(state: CellState, job_id: str) -> MakingRoom | None:
    """The room that is held for a job; None where none is."""
    room = state.rooms.get(job_id)
    if room is None:
        return None
    leaving = tuple(
        job.id for job in state.jobs.values() if job.status is JobStatus.STOPPING and job.stop_for == job_id
    )
    return MakingRoom(room.cause, tuple(dict.fromkeys(place.node for place in room.workers)), leaving, room.until_ms)


def in_order(codes: Iterable[PendingReason]) -> tuple[PendingReason, ...]:
    """The codes, the first to be told first: what could never be, then what keeps the job out of its line, then why it
    would not start there.
    """
    order = list(PRECEDENCE)
    return tuple(sorted(codes, key=lambda code: (code not in STRUCTURAL, code not in NOT_IN_LINE, order.index(code))))


def _elsewhere(state: CellState, spec: JobSpec, codes: Sequence[PendingReason | None]) -> tuple[tuple[str, int], ...]:
    """The pools that it may not use and that have idle GPUs of its type, and how many; none where it waits for
    something else than room.
    """
    if not spec.pools or not any(code is not None and PRECEDENCE[code] in FOR_WANT_OF_NODES for code in codes):
        return ()
    found = dict[str, int]()
    for name in [name for name in sorted(state.pools) if name not in spec.pools]:
        nodes = [state.nodes[node_id] for node_id in state.pools[name].ids]
        fit = [node for node in nodes if node.is_schedulable and spec.gpu_type in (None, node.spec.gpu_type)]
        found[name] = sum(node.gpus_free for node in fit)
    return tuple((name, gpus) for name, gpus in found.items() if gpus)[:NAMED_MAX]


def _away(state: CellState, spec: JobSpec, codes: Sequence[PendingReason | None]) -> tuple[Node, ...]:
    """Nodes of its pools and its kind that are lost or silent, by id; none where it waits for something else."""
    nodes = _wanted_nodes(state, spec, codes)
    return tuple(node for node in nodes if node.status is NodeStatus.LOST or node.silent_wall_ms)


def _changed(state: CellState, spec: JobSpec, codes: Sequence[PendingReason | None]) -> tuple[str, ...]:
    """The first nodes of its pools and its kind that have other hardware than before; none where it waits for something
    else.
    """
    if not state.offers:
        return ()
    nodes = _wanted_nodes(state, spec, codes)
    return tuple(node.id for node in nodes if node.status is NodeStatus.READY and node.offered is not None)[:NAMED_MAX]


def _wanted_nodes(state: CellState, spec: JobSpec, codes: Sequence[PendingReason | None]) -> list[Node]:
    """The nodes of its pools and its kind, if it waits for want of nodes."""
    if not any(code is not None and PRECEDENCE[code] in FOR_WANT_OF_NODES for code in codes):
        return []
    pools = [state.pools[name] for name in spec.pools or sorted(state.pools) if name in state.pools]
    nodes = [state.nodes[node_id] for pool in pools for node_id in pool.ids]
    return [node for node in nodes if spec.gpu_type in (None, node.spec.gpu_type) and wrong_kind(node, spec) is None]


def _closing(state: CellState, spec: JobSpec) -> tuple[tuple[str, int], ...]:
    """The first nodes that the job could still be on when their maintenance begins, and when that is."""
    if not state.maintenance_starts:
        return ()
    pools = [state.pools[name] for name in spec.pools or sorted(state.pools) if name in state.pools]
    shut = [node_id for pool in pools for node_id in shut_for(state, pool, spec)]
    return tuple((node_id, state.maintenance_starts[node_id]) for node_id in shut[:NAMED_MAX])


def _to_free(
    state: CellState,
    spec: JobSpec,
    codes: tuple[PendingReason, ...],
    used: tuple[AccountUse, ...],
    pools: tuple[PoolRoom, ...],
) -> tuple[str, ...]:
    """What is missing below limits, or beside what others do not lend; and in each pool where room is what it waits
    for, or in all together for a job that is no gang and that none of them could hold by itself.
    """
    found = [use.to_free for use in used]
    if PendingReason.QUOTA_REACHED in codes and not any(found):
        found += walled_off(state, spec)
    if any(PRECEDENCE[code] in OF_ROOM for code in codes):
        able = [room for room in pools if room.workers_ever]
        if not spec.gang and all(room.workers_ever < spec.workers for room in able):
            missing = spec.workers - sum(room.workers_now for room in able)
            workers = "worker" if missing == 1 else "workers"
            together = f"room for {missing} more {workers} in {' and '.join(room.pool for room in able)} together"
            return tuple(text for text in (*found, together) if text is not None)
        found += [pool.to_free for pool in shortfall(state, spec, UNITS_LOOKED_AT_MAX)]
    return tuple(text for text in found if text is not None)


def _to_open(state: CellState, job: Job) -> tuple[str, ...]:
    """The first nodes that a person has closed and without which the job has no place even when all else is empty."""
    if not waits_for_closed(state, job):
        return ()
    nodes = _wanted_nodes(state, job.spec, tuple(PendingReason))
    return tuple(node.id for node in nodes if node.status in CLOSED)[:NAMED_MAX]


def _behind(
    state: CellState, job: Job, before: list[Job], queues: Sequence[Queue], now_ms: int, *, has_room: bool
) -> Behind | None:
    """The head that the job may not pass, of its own queue or of one that is walked earlier. `has_room`: nothing else
    keeps it.
    """
    queue = _queue_of(job.spec, queues)
    earlier = list(takewhile(lambda each: each.name != queue.name, queues))
    head = head_before(state, job, before, queue, earlier, now_ms, has_room=has_room)
    if head is None:
        in_lines = [each for each in state.jobs.values() if each.status is JobStatus.QUEUED or grows(each, now_ms)]
        waiting = [other for other in in_lines if _queue_of(other.spec, queues) is queue]
        head = head_before_turns(state, job, queue, waiting, now_ms, has_room=has_room)
    if head is None:
        return None
    other, of = state.jobs[head.spec.id], _queue_of(head.spec, queues)
    return Behind(
        job=other.id,
        since_ms=head.since_ms,
        queue=of.name,
        discipline=of.discipline,
        code=head.code,
        gpus_milli=in_line(other).gpus_milli,
        pools=tuple(name for name in sorted(head.reach) if head.reach[name]),
        under=head.under,
        planned_ms=state.reservations[other.id].start_ms if other.id in state.reservations else None,
    )


def _place(state: CellState, job: Job, now_ms: int) -> Places | PendingReason:
    """Places for the gang or for workers that enter when its pause is over, beside what is kept for waiting owners; or
    why there are none.
    """
    now_ms = max(now_ms, job.not_before_ms)
    kept = state.tree.kept
    Owners().note_all(state)
    try:
        return place_gang(state, job.spec) if job.spec.gang else places_to_enter(state, job, now_ms)
    finally:
        state.tree.kept = kept


def _capacity(
    state: CellState, job: Job, pools: tuple[PoolRoom, ...], used: tuple[AccountUse, ...], now_ms: int
) -> list[PendingReason]:
    """What keeps the job from a place, in all of its pools: nothing where placement would find one."""
    spec, told = in_line(job), _place(state, job, now_ms)
    if not isinstance(told, PendingReason):
        return []
    able = [room for room in pools if room.workers_ever >= spec.workers]
    if not able and not spec.gang:  # only several pools together could hold it
        able = [room for room in pools if room.workers_ever]
    if told in STRUCTURAL or not able:
        return [told if told in STRUCTURAL else PendingReason.NO_SUCH_NODES]
    found = [with_confirmations(state, spec, told)]
    if any(use.is_over for use in used):
        found.append(PendingReason.QUOTA_REACHED)
    if PendingReason.UNACKNOWLEDGED in found or PendingReason.NODES_SILENT in found or not spec.gang:
        return found
    if all(room.gpus_free_milli < spec.gpus_milli for room in able):
        found.append(PendingReason.NO_FREE_GPUS)
    elif all(room.workers_now < spec.workers for room in able):
        found.append(PendingReason.FRAGMENTED)
    return found


def _accounts(state: CellState, spec: JobSpec, pools: tuple[PoolRoom, ...]) -> tuple[AccountUse, ...]:
    """The tenant's accounts of the GPU types that the job could get, and those above them."""
    there = dict.fromkeys(gpu_type for room in pools for gpu_type in room.gpu_types)
    found, types = [], types_for(state, spec)
    for gpu_type in [each for each in there if each in types]:
        for account, room in rooms(state.tree, (spec.tenant, gpu_type)):
            quota = state.quotas.get(account)
            if quota is not None:
                use, sure = state.usage.get(account, 0), quota.guaranteed_milli
                found.append(AccountUse(*account, use, sure, quota.limit_milli, spec.gpus_milli, room))
    return tuple(found)


def _queue_of(spec: JobSpec, queues: Sequence[Queue]) -> Queue:
    """The job's queue; the first one where it names none."""
    name = spec.queue or (queues[0].name if queues else "")
    return next((queue for queue in queues if queue.name == name), Queue.model_construct(name=name))


def _ahead(state: CellState, job: Job, before: list[Job], queue: Queue, now_ms: int) -> Ahead:
    stuck = [other for other in before if other.deferred in STRUCTURAL]
    able = [other for other in before if other.deferred not in STRUCTURAL]
    return Ahead(
        queue=job.spec.queue or "",
        jobs=len(able),
        gpus_milli=sum(other.spec.gpus_milli for other in able),
        first=tuple(other.spec.id for other in able[:NAMED_MAX]),
        share=share_of(state, job.spec.tenant, now_ms) if queue.order is QueueOrder.FAIR_SHARE else None,
        stuck_jobs=len(stuck),
        stuck_gpus_milli=sum(other.spec.gpus_milli for other in stuck),
    )
