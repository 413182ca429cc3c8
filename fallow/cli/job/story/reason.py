"""Why a waiting job waits, in words: the code, its numbers in each domain, and the jobs ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from fallow.cli.cell.now import cell_now_ms
from fallow.cli.job.story.head_words import head_words
from fallow.cli.log.sentences import NODES_NAMED_MAX, gpus, of_job
from fallow.cli.log.why import DEFERRED
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import moment
from fallow.cli.quota.shares import percent
from fallow.services.placement.explain.capacity import PoolRoom, UnitRoom
from fallow.services.placement.explain.explain import AccountUse, Ahead, MakingRoom, Planned, WhyNot, why_not
from fallow.services.placement.search.reason_precedence import PRECEDENCE
from fallow.shared.cluster.capacity.gang_bytes import GANG_BYTES_MAX
from fallow.shared.cluster.model.config import Queue
from fallow.shared.cluster.model.job import WAITING
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, Level, NodeStatus, Wish
from fallow.shared.events.reasons import PendingReason

UNITS_SHOWN_MAX = 5
MILLI = 1_000
NONE_THERE = "none has joined yet, or all were removed"


def reason_in(state: CellState, job_id: str, queues: Sequence[Queue]) -> tuple[WhyNot, JobSpec] | None:
    """Why the job waits in this state of a cell with these queues; None when it does not wait."""
    job = state.jobs.get(job_id)
    if job is None or job.status not in WAITING:
        return None
    return why_not(state, job, queues, cell_now_ms(state.at_ms)), job.spec


def lines(found: WhyNot, spec: JobSpec, away: Sequence[str] = ()) -> Iterator[str]:
    """The reason for people; `away` tells of nodes that are lost or silent."""
    code = found.codes[0] if found.codes else found.recorded
    if not found.codes:
        yield "why it waits: nothing keeps it now, it is about to start"
    elif code is not None:
        yield f"why it waits: {code} ({PRECEDENCE[code]}): {DEFERRED[code]}"
    for more in found.codes[1:]:
        yield f"  also {more} ({PRECEDENCE[more]}): {DEFERRED[more]}"
    if found.recorded is not None and found.recorded not in found.codes:
        yield f"  when placement last looked, it was {found.recorded}: {DEFERRED[found.recorded]}"
    yield from _beside_room(found)
    for line in away:
        yield f"  {line}"
    yield f"  it wants {of_job(spec)}, {gpus(spec.gpus_milli)} in all"
    yield from _pools(found, spec)
    for pool, idle in found.elsewhere:
        are = "is" if idle == 1 else "are"
        yield f"  {counted(idle, 'GPU')} {are} idle in pool {pool}, which it may not use"
    if found.to_free:
        yield f"  missing: {'; '.join(found.to_free)}"
    for use in found.accounts:
        yield f"  {_account(use)}"
    if found.planned is not None:
        yield f"  {_planned(found.planned)}"
    yield f"  {_ahead(found.ahead)}"


def _pools(found: WhyNot, spec: JobSpec) -> Iterator[str]:
    """What room each pool has, and why none could ever do."""
    could_never = PendingReason.NO_SUCH_NODES in found.codes
    for room in found.pools:
        yield from _pool(room, spec)
        if could_never:
            yield from _too_large(room, spec)
    if could_never and not found.pools:
        yield f"  no pool that it may use has a node: {NONE_THERE}"


def _planned(planned: Planned) -> str:
    """When it will start, and what is kept for it."""
    nodes = list(planned.nodes[:NODES_NAMED_MAX])
    if len(planned.nodes) > NODES_NAMED_MAX:
        nodes.append(f"{len(planned.nodes) - NODES_NAMED_MAX} more")
    kept = f"; kept for it until then: {', '.join(nodes)}" if nodes else ""
    return f"planned for {moment(planned.start_ms)}, by estimates{kept}"


def _making_room(room: MakingRoom) -> str:
    """Who has still to leave, and where the job will start."""
    nodes, leaving = (_named(names) for names in (room.nodes, room.leaving))
    still = f"{leaving} {'has' if len(room.leaving) == 1 else 'have'} still to leave" if leaving else "all have left"
    return f"room is held for it ({room.cause}) on {nodes} until {moment(room.until_ms)} at the latest: {still}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - NODES_NAMED_MAX
    return ", ".join([*names[:NODES_NAMED_MAX], *([f"{more} more"] if more > 0 else ())])


def _beside_room(found: WhyNot) -> Iterator[str]:
    """What it waits for that is no room."""
    if found.held_why:
        yield f"  it is held: {found.held_why}"
    if found.needs_bytes is not None:
        needs, takes = found.needs_bytes, GANG_BYTES_MAX
        yield f"  its places need {needs} bytes, the record in which it starts takes {takes}"
    is_to_come = PendingReason.NOT_BEFORE in found.codes or PendingReason.BACKOFF in found.codes
    if found.not_before_ms is not None and is_to_come:
        yield f"  not before {moment(found.not_before_ms)}"
    for node, begin_ms in found.closing:
        yield f"  maintenance of node {node} begins at {moment(begin_ms)}"
    for node_id in found.changed:
        yield f"  node {node_id} has other hardware than before and takes nothing until what runs there has left"
    if found.to_open:
        nodes, are = " and ".join(found.to_open), "is" if len(found.to_open) == 1 else "are"
        yield f"  it cannot start while {nodes} {are} closed, and keeps no other job back meanwhile"
    if found.waits_for:
        yield f"  it waits for the end of {', '.join(found.waits_for)}"
    if found.unknown:
        yield f"  no such job is known: {', '.join(found.unknown)}; submit it, or cancel this one"
    if found.making_room is not None:
        yield f"  {_making_room(found.making_room)}"
    if found.behind is not None:
        yield f"  it may not pass {head_words(found.behind)}"
    if found.head_since_ms is not None:
        yield f"  it is a head of its queue{_since(found.head_since_ms)}"


def as_object(found: WhyNot) -> dict[str, Any]:
    """The reason for programs."""
    return {
        "code": found.codes[0] if found.codes else None,
        "kind": PRECEDENCE[found.codes[0]] if found.codes else None,
        "codes": list(found.codes),
        "recorded": found.recorded,
        "not_before_ms": found.not_before_ms,
        "waits_for": list(found.waits_for),
        "held_why": found.held_why,
        "needs_bytes": found.needs_bytes,
        "closing": [{"node": node, "begin_ms": begin_ms} for node, begin_ms in found.closing],
        "away": [_away(node) for node in found.away],
        "changed": list(found.changed),
        "to_open": list(found.to_open),
        "unknown": list(found.unknown),
        "elsewhere": [{"pool": pool, "gpus": gpus} for pool, gpus in found.elsewhere],
        "behind": None if found.behind is None else asdict(found.behind),
        "head_since_ms": found.head_since_ms,
        "pools": [asdict(room) for room in found.pools],
        "to_free": list(found.to_free),
        "accounts": [{**asdict(use), "is_over": use.is_over} for use in found.accounts],
        "ahead": asdict(found.ahead),
        "making_room": None if found.making_room is None else asdict(found.making_room),
        "planned": None if found.planned is None else asdict(found.planned),
    }


def _away(node: Node) -> dict[str, Any]:
    return {
        "node": node.id,
        "status": "lost" if node.status is NodeStatus.LOST else "silent",
        "lost_ms": node.lost_ms,
        "silent_wall_ms": node.silent_wall_ms,
    }


def _since(at_ms: int | None) -> str:
    return "" if at_ms is None else f", since {moment(at_ms)}"


def _pool(room: PoolRoom, spec: JobSpec) -> Iterator[str]:
    yield (
        f"  pool {room.pool}: {gpus(room.gpus_free_milli)} free of {gpus(room.gpus_milli)}, {room.nodes_whole} of "
        f"{counted(room.nodes, 'node')} whole; {_fitting(room, spec)} would fit now, "
        f"{_ever(room, spec)} if it were empty"
    )
    if room.nodes and not room.units and _has_to_lie_in_one(spec):
        yield f"    no node here names its {room.level}"
    if spec.node_labels or room.nodes_right < room.nodes:
        nodes = counted(room.nodes, "node")
        yield f"    {room.nodes_right} of {nodes} are for a job like this, by their zone, labels and taints"
    if room.closed:
        idle = dict(room.closed_gpus)
        parts = (f"{nodes} {_nodes(nodes)} {why}{_idle(idle.get(why, 0))}" for why, nodes in room.closed)
        yield f"    {', '.join(parts)}"
    for unit in room.units[:UNITS_SHOWN_MAX]:
        yield f"    {room.level} {_unit(unit)}"
    more = len(room.units) - UNITS_SHOWN_MAX
    if more > 0:
        yield f"    and {more} more with no more room than these"


def _too_large(room: PoolRoom, spec: JobSpec) -> Iterator[str]:
    """What no node of the pool could hold, or no unit of its network: what is asked for, and the most that there is.
    Where no node is for such a job, its size does not matter.
    """
    if not room.nodes or not room.nodes_right:
        yield f"    {_no_node(room, spec)}"
        return
    wants, wish = spec.resources, spec.topology
    needs = f"{gpus(wants.gpu_milli)}, {wants.cpu_milli / MILLI:g} CPUs and {wants.memory_mib:,} MiB"
    has = f"{counted(room.gpus_max, 'GPU')}, {room.cpu_milli_max / MILLI:g} CPUs, {room.memory_mib_max:,} MiB"
    yield f"    each worker needs {needs}; the most that any node has that it may use: {has}"
    if wish is not None and _has_to_lie_in_one(spec):
        most = max(room.units, key=lambda unit: unit.workers_ever, default=None)
        wanted = min(wish.slice_workers or spec.workers, spec.workers)
        holds = (
            "no node names its own" if most is None else f"{most.unit} would hold {most.workers_ever} if it was empty"
        )
        yield f"    it requires one {wish.level} for {counted(wanted, 'worker')}; {holds}"


def _no_node(room: PoolRoom, spec: JobSpec) -> str:
    """Why no node of the pool may take the job, whatever its size."""
    if not room.nodes:
        return f"no node of it has GPUs of type {spec.gpu_type}" if room.closed else f"it has no node: {NONE_THERE}"
    return "no node of it may take the job, however small that is, by its zone, labels and taints"


def _ever(room: PoolRoom, spec: JobSpec) -> int:
    """How many workers would fit if the pool were empty, in one unit where all of them must be in one."""
    if not _has_to_lie_in_one(spec):
        return room.workers_ever
    return max((unit.workers_ever for unit in room.units), default=0)


def _has_to_lie_in_one(spec: JobSpec) -> bool:
    """Whether all workers of the job must be in one unit of the network."""
    wish = spec.topology
    return wish is not None and wish.wish is Wish.REQUIRED and wish.level is not Level.NODE


def _fitting(room: PoolRoom, spec: JobSpec) -> str:
    """`3 of 4 workers in leaf-1, 2 of 4 in leaf-2`."""
    (first, unit), *more = room.fitting(spec)
    found = [f"{first} of {counted(spec.workers, 'worker')}{f' in {unit}' if unit else ''}"]
    return ", ".join(found + [f"{workers} of {spec.workers} in {unit}" for workers, unit in more])


def _idle(count: int) -> str:
    return f" ({counted(count, 'GPU')} idle)" if count else ""


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"


def _unit(unit: UnitRoom) -> str:
    return (
        f"{unit.unit} has {unit.nodes_whole} of {unit.nodes} whole nodes, {gpus(unit.gpus_free_milli)} free, "
        f"room for {unit.workers_now} of its workers"
    )


def _account(use: AccountUse) -> str:
    limit = "no limit" if use.limit_milli is None else f"a limit of {gpus(use.limit_milli)}"
    passed = f"; {gpus(use.wanted_milli)} more would pass it" if use.is_over else ""
    if use.is_over and use.room_milli is not None and use.room_milli + use.used_milli != use.limit_milli:
        passed = f"; it may have {gpus(max(0, use.room_milli))} more, for it may borrow no further"
    sure = f", {gpus(use.guaranteed_milli)} guaranteed" if use.guaranteed_milli else ""
    return f"tenant {use.tenant}, {use.gpu_type}: {gpus(use.used_milli)} in use{sure}, {limit}{passed}"


def _ahead(ahead: Ahead) -> str:
    share = "" if ahead.share is None else f"; its tenant {ahead.share.tenant} has a share of {percent(ahead.share)} %"
    share = f"{_stuck(ahead)}{share}"
    if not ahead.jobs:
        return f"no job {'that could start ' if ahead.stuck_jobs else ''}is ahead of it in queue {ahead.queue}{share}"
    more = ahead.jobs - len(ahead.first)
    rest = f" and {more} more" if more else ""
    jobs, want = counted(ahead.jobs, "job"), gpus(ahead.gpus_milli)
    return f"ahead of it in queue {ahead.queue}: {jobs} for {want}: {', '.join(ahead.first)}{rest}{share}"


def _stuck(ahead: Ahead) -> str:
    """The jobs ahead that could not start if all else were over: they are no reason to wait."""
    if not ahead.stuck_jobs:
        return ""
    jobs, keep = counted(ahead.stuck_jobs, "job"), "keeps" if ahead.stuck_jobs == 1 else "keep"
    return f"; beside it {jobs} for {gpus(ahead.stuck_gpus_milli)} that could never start here and {keep} no job back"
