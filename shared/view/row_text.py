"""Rows as the text that Redis keeps, and back. Equal states give equal text, so views can be compared byte by byte."""

from __future__ import annotations

import json
from typing import Any

from msgspec.json import Encoder

from shared.cluster.file_in_force import queue_in_force
from shared.cluster.job import Job, JobStatus, OverJob, wait_reason
from shared.cluster.node import Node, bits
from shared.cluster.queue_order import order_in
from shared.cluster.quota import Account
from shared.cluster.state import CellState
from shared.events.reasons import DeferCode
from shared.events.values import JobKind, LoanStatus, NodeRole, NodeStatus
from shared.view.keys import place_in_queue
from shared.view.rows import AccountRow, JobRow, NodeRow, Place, PoolRow

_encode = Encoder().encode

_PLANNED = 16
"""Where the planned start stands in a job's row; one that an earlier release wrote has none."""

_HELD_WHY = 17
"""Where a row says why a job is held, if that is no wish of a person. No other row goes on so far."""


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
        *((job.held_why,) if job.held_why else ()),
    )
    return f"{spec.tenant} {job.status} {place}\n{_to_json(fields)}"


def over_text(over: OverJob) -> str:
    """The row of a job that is over."""
    fields = (over.id, "", 0, None, 0, 0, 0, None, None, 0, None, None, over.over_ms, (), 0, 0, None)
    return f"{over.tenant} {over.status} \n{_to_json(fields)}"


def job_row(text: str, position: int = -1) -> JobRow:
    """The job of a row; a negative position is none."""
    head, _, body = text.partition("\n")
    tenant, status, _ = head.split(" ", 2)
    fields, its_status = json.loads(body), JobStatus(status)
    return JobRow(
        id=fields[0],
        tenant=tenant,
        status=its_status,
        queue=fields[1],
        priority=fields[2],
        kind=_maybe(JobKind, fields[3]),
        gpus_milli=fields[4],
        workers=fields[5],
        attempt=fields[6],
        deferred=wait_reason(its_status, _maybe(DeferCode, fields[7])),
        submit_ms=fields[8],
        not_before_ms=fields[9],
        first_start_ms=fields[10],
        started_ms=fields[11],
        over_ms=fields[12],
        places=tuple(Place(rank, node, tuple(devices), milli) for rank, node, devices, milli in fields[13]),
        preemptions=fields[14],
        failures=fields[15],
        planned_start_ms=fields[_PLANNED] if len(fields) > _PLANNED else None,
        position=position if position >= 0 else None,
        held_why=fields[_HELD_WHY] if len(fields) > _HELD_WHY else "",
    )


def _maybe(kind: Any, value: str | None) -> Any:
    return None if value is None else kind(value)


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
    )
    return _to_json(fields)


def node_row(text: str) -> NodeRow:
    """The node of a row."""
    fields = json.loads(text)
    fields[4] = NodeRole(fields[4])
    fields[5] = NodeStatus(fields[5])
    fields[8] = tuple(fields[8])
    fields[14] = tuple((job, workers) for job, workers in fields[14])
    fields[16] = LoanStatus(fields[16])
    fields[20] = None if fields[20] is None else (fields[20][0], fields[20][1])
    return NodeRow(*fields)


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
    """The accounts of a tenant's row; a tenant without one has none."""
    return tuple(AccountRow(*fields) for fields in json.loads(text)) if text else ()


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
    """The pools of such a text."""
    return tuple(PoolRow(*fields) for fields in json.loads(text))
