"""Rows as the text that Redis keeps, and back. Equal states give equal text, so views can be compared byte by byte."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import astuple

from fallow.shared.cluster.model.file_in_force import queue_in_force
from fallow.shared.cluster.model.job import FinishedJob, Job, JobStatus, wait_reason
from fallow.shared.cluster.model.node import Node, bits
from fallow.shared.cluster.model.queue_order import order_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.cluster.quota.quota import Account
from fallow.shared.events.fields.values import JobKind, LoanStatus, NodeRole, NodeStatus
from fallow.shared.events.reasons import PendingReason
from fallow.shared.view.keys import place_in_queue
from fallow.shared.view.rows import WAITED_FOR_NAMED_MAX, AccountRow, JobRow, NodeRow, Place, PoolRow

T = TypeVar("T")

_encode = Encoder().encode

_HEAD_WORDS = 3
_STATUSES = frozenset(JobStatus)


class NoRow(ValueError):
    """A text that is no row as it is written here: a foreign writer wrote it."""


class _JobFields(Struct, array_like=True):
    """A job's row behind its first line. A row of an earlier release ends before the planned start; why a job is held
    stands only where that is no wish of a person or more follows, the job for which it waits only where it does, and
    for how many more only where these are not all.
    """

    id: str
    queue: str
    priority: int
    kind: JobKind | None
    gpus_milli: int
    workers: int
    attempt: int
    deferred: PendingReason | None
    submit_ms: int | None
    not_before_ms: int
    first_start_ms: int | None
    started_ms: int | None
    over_ms: int | None
    places: list[tuple[int, str, tuple[int, ...], int]]
    preemptions: int
    failures: int
    planned_start_ms: int | None = None
    held_why: str = ""
    waits_for: tuple[str, ...] = ()
    waits_for_more: int = 0


class _NodeFields(Struct, array_like=True):
    """A node's row, in the order of NodeRow."""

    id: str
    pool: str
    home_pool: str
    gpu_type: str
    role: NodeRole
    status: NodeStatus
    gpus: int
    gpus_free: int
    gpus_failed: tuple[int, ...]
    allocated_milli: int
    cpu_milli: int
    cpu_used_milli: int
    memory_mib: int
    memory_used_mib: int
    jobs: tuple[tuple[str, int], ...]
    loan: str | None
    loan_status: LoanStatus
    loan_deadline_ms: int | None
    drain_deadline_ms: int | None
    reason: str
    maintenance_ms: tuple[int, int] | None
    maintenance_why: str
    silent_wall_ms: int
    gpus_held: int = 0


_JOB, _NODE = Decoder(_JobFields), Decoder(_NodeFields)
_ACCOUNTS = Decoder(list[tuple[str, int, int, int | None, int]])
_POOLS = Decoder(list[tuple[str, int, int, int, int, int, int]])


def _to_json(fields: Any) -> str:
    return _encode(fields).decode()


def place_of(state: CellState, job: Job) -> str:
    """Where a job stands in its queue by the cell file in force; nothing for one that is not queued."""
    if job.status is not JobStatus.QUEUED:
        return ""
    name = job.spec.queue or ""
    queue = queue_in_force(state.cell_file, state.cell, name)
    return place_in_queue(name, order_in(queue, job.spec, job.submit_ms, job.number))


def job_text(state: CellState, job: Job) -> str:
    """The row of a job that waits or holds places."""
    spec, place, planned = job.spec, place_of(state, job), state.reservations.get(job.spec.id)
    queue = spec.queue or ""
    fields = (
        spec.id,
        queue,
        spec.priority,
        spec.kind,
        spec.gpus_milli,
        spec.workers,
        job.attempt,
        job.deferred,
        job.submit_ms,
        job.not_before_ms,
        job.first_start_ms,
        job.started_ms,
        None,
        [(held.rank, held.node, held.devices, held.gpu_milli) for held in job.workers + job.joining],
        job.preemptions,
        job.failures,
        None if planned is None else planned.start_ms,
        *_why_it_waits(job),
    )
    return f"{spec.tenant} {job.status} {place}\n{_to_json(fields)}"


def _why_it_waits(job: Job) -> tuple[Any, ...]:
    """The end of a row, as far as there is something to tell. A job may name a hundred others: some are enough here."""
    more = len(job.waits_for) - WAITED_FOR_NAMED_MAX
    if more > 0:
        return (job.held_why, job.waits_for[:WAITED_FOR_NAMED_MAX], more)
    if job.waits_for:
        return (job.held_why, job.waits_for)
    return (job.held_why,) if job.held_why else ()


def over_text(over: FinishedJob) -> str:
    """The row of a job that is over."""
    fields = (over.id, "", 0, None, 0, 0, 0, None, None, 0, None, None, over.over_ms, (), 0, 0, None)
    return f"{over.tenant} {over.status} \n{_to_json(fields)}"


def job_row(text: str, position: int = -1) -> JobRow:
    """The job of a row; a negative position is none. Raises NoRow."""
    head, _, body = text.partition("\n")
    fields = _read(_JOB, body)
    words = head.split(" ", 2)
    if len(words) < _HEAD_WORDS or words[1] not in _STATUSES:
        raise NoRow(f"of job {fields.id}: its first line is not as it should be")
    status = JobStatus(words[1])
    return JobRow(
        id=fields.id,
        tenant=words[0],
        status=status,
        queue=fields.queue,
        priority=fields.priority,
        kind=fields.kind,
        gpus_milli=fields.gpus_milli,
        workers=fields.workers,
        attempt=fields.attempt,
        deferred=wait_reason(status, fields.deferred),
        submit_ms=fields.submit_ms,
        not_before_ms=fields.not_before_ms,
        first_start_ms=fields.first_start_ms,
        started_ms=fields.started_ms,
        over_ms=fields.over_ms,
        places=tuple(Place(*place) for place in fields.places),
        preemptions=fields.preemptions,
        failures=fields.failures,
        planned_start_ms=fields.planned_start_ms,
        position=position if position >= 0 else None,
        held_why=fields.held_why,
        waits_for=fields.waits_for,
        waits_for_more=fields.waits_for_more,
    )


def _read(decoder: Decoder[T], text: str) -> T:
    try:
        return decoder.decode(text)
    except (DecodeError, RecursionError) as error:
        raise NoRow(str(error)) from error


def node_text(node: Node) -> str:
    """The row of a node. Its jobs stand in the order of their ids, since readers may know them in another."""
    spec = node.spec
    fields = (
        spec.id,
        node.pool,
        spec.pool,
        spec.gpu_type,
        spec.role,
        node.status,
        spec.gpus,
        node.gpus_free,
        bits(node.failed),
        node.allocated_milli,
        spec.cpu_milli,
        node.cpu_used,
        spec.memory_mib,
        node.memory_used,
        sorted(node.jobs.items()),
        node.loan,
        node.loan_status,
        node.loan_deadline_ms,
        node.drain_deadline_ms,
        node.reason,
        node.maintenance_ms,
        node.maintenance_why,
        node.silent_wall_ms,
        node.room.bit_count(),
    )
    return _to_json(fields)


def node_row(text: str) -> NodeRow:
    """The node of a row. Raises NoRow."""
    return NodeRow(*astuple(_read(_NODE, text)))


def accounts_by_tenant(state: CellState) -> dict[str, list[Account]]:
    """Every account that has a quota or is in use, by tenant, GPU types in their order."""
    found: dict[str, list[Account]] = {}
    for account in sorted({**state.quotas, **state.usage}):
        found.setdefault(account[0], []).append(account)
    return found


def tenant_text(state: CellState, accounts: list[Account]) -> str:
    """The row of a tenant with these accounts."""
    rows = []
    for account in accounts:
        quota, used = state.quotas.get(account), state.usage.get(account, 0)
        guaranteed = quota.guaranteed_milli if quota else 0
        limit = quota.limit_milli if quota else None
        branch = state.tree.branches.get(account) if quota else None
        with_children = branch.guaranteed_milli if branch else 0
        rows.append((account[1], used, guaranteed, limit, max(0, used - with_children)))
    return _to_json(rows)


def account_rows(text: str) -> tuple[AccountRow, ...]:
    """The accounts of a tenant's row; a tenant without one has none. Raises NoRow."""
    return tuple(AccountRow(*fields) for fields in _read(_ACCOUNTS, text)) if text else ()


def pools_text(state: CellState) -> str:
    """All pools in numbers."""
    rows = []
    for name in sorted(state.pools):
        pool = state.pools[name]
        rows.append(
            (
                name,
                len(pool.ids),
                pool.nodes_usable,
                pool.nodes_fragmented,
                pool.gpus_milli,
                pool.allocated_milli,
                pool.free_whole,
            )
        )
    return _to_json(rows)


def pool_rows(text: str) -> tuple[PoolRow, ...]:
    """The pools of such a text. Raises NoRow."""
    return tuple(PoolRow(*fields) for fields in _read(_POOLS, text))
