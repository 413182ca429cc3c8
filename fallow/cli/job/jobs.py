"""`fallow jobs`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_job
from fallow.cli.cell.retry import patiently
from fallow.cli.errors.failures import Exit, end_with, refuse
from fallow.cli.job.story.why_waits import waits
from fallow.cli.log.sentences import gpus
from fallow.cli.output.counts import counted
from fallow.cli.output.durations import to_the_second
from fallow.cli.output.output import AsJson, CellName, print_json, print_line, print_table
from fallow.shared.client.port import CellClient
from fallow.shared.cluster.model.arrays import arrays_among
from fallow.shared.cluster.model.job import FINAL, JobStatus
from fallow.shared.events.fields.job_ids import full_id, own_id, parted
from fallow.shared.events.queue import QueueOrder
from fallow.shared.near import first_named, listed, meant
from fallow.shared.view.reader import LIMIT_MAX, Read
from fallow.shared.view.rows import JobRow

app = typer.Typer()

COLUMNS = ("JOB", "STATUS", ">GPUS", ">WORKERS", "QUEUE", ">PRIORITY", ">PLACE", "SUBMITTED", "WHERE OR WHY")

NODES_NAMED_MAX = 2
"""So many nodes of a job are named in its row."""

_PARTS = re.compile(r"(\D*)(\d{0,18})")

SPARE = ("SUBMITTED", "PRIORITY", "WORKERS", "PLACE", "QUEUE")

FORGOTTEN = (
    *("queue", "priority", "kind", "gpus_milli", "workers", "attempt", "deferred", "submit_ms", "not_before_ms"),
    *("first_start_ms", "started_ms", "preemptions", "failures", "position", "planned_start_ms", "held_why"),
    *("waits_for", "waits_for_more"),
)
"""What the view does not know of a job that is over."""


@app.command()
def jobs(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    status: Annotated[
        list[JobStatus] | None,
        typer.Option(
            metavar="STATUS",
            help=f"Only jobs in this status; may be repeated: {', '.join(JobStatus)}.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Only jobs that are not over: every such status.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most so many, by id.")] = 100,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="ID", callback=a_job, help="Only jobs behind this one: TENANT/ID, or with --tenant its id."
        ),
    ] = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """List jobs: where each runs, or why it waits, or when it ended, as long as the cell remembers it.

    Exit 1 if the tenant is none of the cell file and has no such jobs.
    """
    access = access_of(context)
    name = access.cell(cell)
    wanted = {*(status or ()), *((each for each in JobStatus if each not in FINAL) if live else ())}
    behind = _behind(after, tenant)
    read, is_cut, arrays = run(_jobs(access, name, tenant, wanted, limit, behind))
    part = access.cells().cell(name)
    read = without_places(read, [queue.name for queue in part.queues if queue.order is QueueOrder.FAIR_SHARE])
    if as_json:
        print_json({**as_object(name, read, "jobs"), "arrays": sorted(arrays)})
    known = dict.fromkeys(each.name for each in access.cells().tenants)
    if not read.value and tenant is not None and tenant not in known:
        end_with(Exit.NO, f"fallow: {tenant} is no tenant of the cell file ({listed(known)}){meant(tenant, known)}")
    if not as_json:
        _tell(name, read, behind, arrays, is_cut=is_cut)


def _behind(after: str | None, tenant: str | None) -> str:
    """The job behind which the list goes on, in full; "" where it begins with the first. Ends the command where that
    is a job of another tenant than those of the list, or of no tenant.
    """
    if after is None:
        return ""
    whose = parted(after)[0] or tenant
    if whose is None:
        refuse("--after", after, "says no tenant: give TENANT/ID, or --tenant")
    if tenant not in (None, whose):
        refuse("--after", after, f"must be a job of {tenant}, which --tenant names")
    return full_id(whose, after)


def _tell(
    cell: str, read: Read[tuple[JobRow, ...]], after: str, arrays: frozenset[str] = frozenset(), *, is_cut: bool
) -> None:
    """For people. A part of a long list is told in the order in which `--after` goes on behind its last one."""
    is_all = not after and not is_cut
    rows = sorted(read.value, key=by_number) if is_all else read.value
    which = told_apart(len(rows) - len(arrays), len(arrays)) + (f" behind {after}" if after else "")
    title = f"{'the first ' if is_cut else ''}{which} of cell {cell} at version {read.version}"
    print_table(title, COLUMNS, [_row(job, is_array=job.id in arrays) for job in rows], SPARE)
    if is_cut:
        print_line(f"and more: --after {rows[-1].id}")


def told_apart(jobs: int, arrays: int) -> str:
    """How many jobs there are, and arrays that are over: elements are jobs, their array is none."""
    over = f" and {counted(arrays, 'array')} that {'is' if arrays == 1 else 'are'} over" if arrays else ""
    return counted(jobs, "job") + over


async def _jobs(
    access: Access, cell: str, tenant: str | None, statuses: Collection[JobStatus], limit: int, after: str
) -> tuple[Read[tuple[JobRow, ...]], bool, frozenset[str]]:
    async with access.client() as client:
        return await page_of(client, cell, tenant, statuses, limit, after)


async def page_of(
    client: CellClient, cell: str, tenant: str | None, statuses: Collection[JobStatus], limit: int, after: str
) -> tuple[Read[tuple[JobRow, ...]], bool, frozenset[str]]:
    """A page, whether there are more behind it, and the ids of its rows that are no jobs but arrays. Raises as the
    client does.
    """

    def page(limit: int, after: str) -> Awaitable[Read[tuple[JobRow, ...]]]:
        return patiently(lambda: client.jobs(cell, tenant=tenant, statuses=statuses, limit=limit, after=after))

    found = await page(limit, after)
    over, there = [row.id for row in found.value if row.status in FINAL], [row.id for row in found.value]
    is_cut = len(found.value) == limit and bool((await page(1, there[-1])).value)
    arrays = arrays_among(over, there)
    # Elements stand behind their array by id: of one with whose id the last of the page begins, maybe on the next one.
    unsure = [job for job in over if is_cut and there[-1].startswith(job) and job not in arrays]
    if unsure:
        arrays |= {*(await patiently(lambda: client.arrays(cell, unsure))).value}
    return found, is_cut, arrays


def without_places(read: Read[tuple[JobRow, ...]], queues: Sequence[str]) -> Read[tuple[JobRow, ...]]:
    """The rows without the places of jobs in these queues: `fallow job` tells which jobs are ahead there."""
    if not queues:
        return read
    rows = (replace(job, position=None) if job.queue in queues else job for job in read.value)
    return replace(read, value=tuple(rows))


def as_object(cell: str, read: Read[Any], what: str) -> dict[str, Any]:
    """Rows for programs, with the version that they belong to."""
    rows = [job_object(row) if isinstance(row, JobRow) else asdict(row) for row in read.value]
    return {"cell": cell, "version": read.version, "at_ms": read.at_ms, "is_fenced": read.is_fenced, what: rows}


def job_object(job: JobRow) -> dict[str, Any]:
    """A job for programs, by its own id and, as `job`, in full. What the cell does not remember of one that is over is
    null.
    """
    names = {"id": own_id(job.id), "tenant": job.tenant, "job": full_id(job.tenant, job.id)}
    return {**asdict(job), **names, **(dict.fromkeys(FORGOTTEN) if job.status in FINAL else {})}


def _row(job: JobRow, *, is_array: bool = False) -> tuple[Any, ...]:
    return (
        full_id(job.tenant, job.id),
        job.status,
        _held_of(sum(place.gpu_milli for place in job.places), job.gpus_milli),
        _workers(job),
        job.queue,
        "" if job.status in FINAL else job.priority,
        "" if job.position is None else job.position + 1,
        "" if job.submit_ms is None else to_the_second(job.submit_ms),
        ("array, " if is_array else "") + where_or_why(job),
    )


def _held_of(held_milli: int, wanted_milli: int) -> str:
    """How many GPUs a job wants; of one that holds fewer, or more, `2 of 4`."""
    wanted = gpus(wanted_milli).split()[0] if wanted_milli else ""
    return wanted if held_milli in (0, wanted_milli) else f"{gpus(held_milli).split()[0]} of {wanted or 0}"


def _workers(job: JobRow) -> str:
    held, wanted = len(job.places), str(job.workers or "")
    return wanted if held in (0, job.workers) else f"{held} of {wanted or 0}"


def by_number(job: JobRow) -> tuple[tuple[str, int, str], ...]:
    """The order of ids in which `job-10` comes behind `job-9`."""
    return tuple((text, int(number or -1), number) for text, number in _PARTS.findall(job.id))


def where_or_why(job: JobRow) -> str:
    """The nodes that a job holds, or why it waits, or when it ended."""
    nodes = list(dict.fromkeys(place.node for place in job.places))
    if nodes:
        return first_named(nodes, NODES_NAMED_MAX)
    if job.over_ms is not None:
        return f"ended {to_the_second(job.over_ms)}"
    planned = "" if job.planned_start_ms is None else f"planned for {to_the_second(job.planned_start_ms)}"
    why = waits(job.deferred, job.held_why, job.waits_for, job.waits_for_more)
    return "; ".join(part for part in (why, planned) if part)
