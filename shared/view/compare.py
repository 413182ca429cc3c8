"""I7: the view equals what the fold of the log gives. Compares every row, through the functions that readers use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fallow.shared.cluster.model.job import HOLDING, WAITING, JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.view.reader import STATUSES, Read, ViewReader
from fallow.shared.view.row_text import (
    account_rows,
    accounts_by_tenant,
    job_row,
    job_text,
    node_row,
    node_text,
    over_text,
    place_of,
    pool_rows,
    pools_text,
    tenant_text,
)
from fallow.shared.view.rows import JobRow, SummaryRow, TenantRow

T = TypeVar("T")

PAGE_JOBS = 2_000


class ViewMoved(Exception):
    """The view went on while it was read: nothing can be said. Compare again."""


@dataclass(frozen=True, slots=True)
class ViewDifference:
    """Something that the view shows otherwise than the fold. `what` names it: `job x`, `node y`, `tenant z`."""

    what: str
    view: str
    fold: str

    def __str__(self) -> str:
        """One line for people."""
        return f"I7 {self.what}: the view shows {self.view}, the log gives {self.fold}"


async def compare_view(reader: ViewReader, state: CellState) -> list[ViewDifference]:
    """Every difference between a cell's view and a state folded to the same record; in a fixed order.

    Raises ViewMoved if the view is at another version than the state or moves while it is read, and what readers raise.
    """
    cell, version = state.cell, state.version
    nodes = _of(await reader.nodes(cell), version)
    tenants = _of(await reader.tenants(cell), version)
    summary = _of(await reader.summary(cell), version)
    jobs: dict[str, JobRow] = {}
    page: tuple[JobRow, ...] | None = None
    while page is None or len(page) == PAGE_JOBS:
        after = page[-1].id if page else ""
        page = _of(await reader.jobs(cell, limit=PAGE_JOBS, after=after), version)
        jobs.update((job.id, job) for job in page)
    expected = job_rows_of(state)
    return [
        *_differences("job", jobs, expected),
        *_differences("node", {node.id: node for node in nodes}, _node_rows_of(state)),
        *_differences("tenant", {row.tenant: row for row in tenants}, tenant_rows_of(state)),
        *_differences("summary of", {cell: summary}, {cell: summary_row_of(state, expected)}),
    ]


def _of(read: Read[T], version: int) -> T:
    if read.version != version:
        raise ViewMoved(f"the view is at version {read.version}, the state at {version}")
    return read.value


def _differences(what: str, view: Mapping[str, object], fold: Mapping[str, object]) -> Iterator[ViewDifference]:
    for name in sorted({**view, **fold}):
        shown, given = view.get(name), fold.get(name)
        if shown != given:
            yield ViewDifference(f"{what} {name}", str(shown or "nothing"), str(given or "nothing"))


def job_rows_of(state: CellState) -> dict[str, JobRow]:
    """The rows of all jobs that the state knows, with their positions."""
    positions: dict[str, int] = {}
    lengths: dict[str, int] = {}
    queued = [job for job in state.jobs.values() if job.status is JobStatus.QUEUED]
    for job in sorted(queued, key=lambda job: place_of(state, job)):
        queue = job.spec.queue or ""
        positions[job.id] = lengths.get(queue, 0)
        lengths[queue] = positions[job.id] + 1
    rows = {job_id: job_row(job_text(state, job), positions.get(job_id, -1)) for job_id, job in state.jobs.items()}
    rows.update((job_id, job_row(over_text(over))) for job_id, over in state.finished.items())
    return rows


def _node_rows_of(state: CellState) -> dict[str, object]:
    return {node_id: node_row(node_text(node)) for node_id, node in state.nodes.items()}


def tenant_rows_of(state: CellState) -> dict[str, TenantRow]:
    """The rows of all tenants that the state knows."""
    accounts = accounts_by_tenant(state)
    counts: dict[str, list[int]] = {tenant: [0, 0] for tenant in accounts}
    for job in state.jobs.values():
        count = counts.setdefault(job.spec.tenant, [0, 0])
        count[0] += job.status in WAITING
        count[1] += job.status in HOLDING
    for over in state.finished.values():
        counts.setdefault(over.tenant, [0, 0])
    return {
        tenant: TenantRow(tenant, account_rows(tenant_text(state, accounts.get(tenant, []))), waiting, running)
        for tenant, (waiting, running) in counts.items()
    }


def summary_row_of(state: CellState, jobs: Mapping[str, JobRow]) -> SummaryRow:
    """The state in a few numbers; `jobs` are its rows."""
    by_status = dict.fromkeys(STATUSES, 0)
    queues: dict[str, int] = {}
    for job in jobs.values():
        by_status[job.status] += 1
        if job.position is not None:
            queues[job.queue] = queues.get(job.queue, 0) + 1
    return SummaryRow(pool_rows(pools_text(state)), len(state.nodes), by_status, queues)
