"""The job that is meant on the command line: TENANT/ID is the job itself; the id alone is a job of the tenant that
`--tenant` names, or the only one of that id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from fallow.cli.access import Access
from fallow.cli.arguments.ids import a_tenant
from fallow.cli.errors.failures import Exit, end_with, say
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.events.fields.job_ids import full_id, own_id
from fallow.shared.near import NAMED_MAX

SAY_AFTER_S = 1.0
"""So long a log is read without a word."""

TenantName = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        envvar="FALLOW_TENANT",
        callback=a_tenant,
        help="Whose jobs are named by their ids alone; looked up if it is not given.",
    ),
]


@dataclass(frozen=True, slots=True)
class Named:
    """A job in full, and its cell: the one that is given, else the only one that has it; None where that is not known,
    or needs no look: the job was typed in full, and there is one cell. One that no tenant has stays as it was typed.
    """

    job: str
    cell: str | None


async def in_full(
    client: CellClient, typed: Sequence[str], tenant: str | None, cell: str | None, *, at_end: bool = False
) -> list[str]:
    """Each of these jobs in full, once; one that no tenant has stays as it was typed. Ends the command where several
    tenants have one, or one tenant in several cells. `at_end`: by all that the log holds now, for a command that
    changes the job. Raises ClientUnavailable.
    """
    found = {each: await _named(client, each, tenant, cell, at_end=at_end) for each in dict.fromkeys(typed)}
    return list(dict.fromkeys(named.job for named in found.values()))


async def one_in_full(
    access: Access, typed: str, tenant: str | None, cell: str | None, *, at_end: bool = False
) -> Named:
    """Finds one job by a client of its own; the command's own client tells of a fence."""
    async with access.client(tells_fence=False) as client:
        return await _named(client, typed, tenant, cell, at_end=at_end)


async def _named(client: CellClient, typed: str, tenant: str | None, cell: str | None, *, at_end: bool) -> Named:
    full = full_id(tenant or "", typed) if "/" in typed or tenant is not None else None
    if full is not None and (cell is not None or len(client.cells) == 1):
        return Named(full, cell)
    places = await matches(client, own_id(typed), cell, full=full, at_end=at_end)
    jobs = sorted({job for _, job in places})
    if len(jobs) > 1:
        end_with(Exit.USAGE, f"fallow: {several(typed, jobs)}")
    if len(places) > 1:
        there = " and ".join(f"in {name}" for name, _ in places[:NAMED_MAX])
        end_with(Exit.USAGE, f"fallow: {jobs[0]} is a job {there}: name its cell by --cell")
    return Named(jobs[0], places[0][0]) if jobs else Named(full or typed, cell)


async def matches(
    client: CellClient, own: str, cell: str | None, *, full: str | None = None, at_end: bool = False
) -> list[tuple[str, str]]:
    """The jobs of this id, in full, each behind its cell, as the view knows them; of them only `full` where that is
    given. Where the view of a cell does not say, or none knows any, the log tells. Raises ClientUnavailable.
    """
    cells = client.cells if cell is None else (cell,)
    seen = {name: _of(full, await _seen(client, name, own, at_end=at_end)) for name in cells}
    is_found = any(seen.values())
    for name, jobs in seen.items():
        if jobs is None or not is_found:
            with tells_of_reading(full or own, name):
                seen[name] = _of(full, await client.names_told(name, own))
    return [(name, job) for name, jobs in seen.items() for job in sorted(jobs or ())]


def _of(full: str | None, jobs: Sequence[str] | None) -> Sequence[str] | None:
    return jobs if jobs is None or full is None else [job for job in jobs if job == full]


@contextmanager
def tells_of_reading(job: str, cell: str) -> Iterator[None]:
    """For as long as a log is read to find a job: it may hold millions of records, so a reading that lasts is told,
    once, with what does without it.
    """
    way = "--cell" if "/" in job else "TENANT/ID, or --tenant,"
    text = (
        f"fallow: no view tells of job {job}: the log of cell {cell} is read to its end; with {way} that is not needed"
    )
    line = asyncio.get_running_loop().call_later(SAY_AFTER_S, say, text)
    try:
        yield
    finally:
        line.cancel()


async def _seen(client: CellClient, cell: str, own: str, *, at_end: bool) -> Sequence[str] | None:
    """What the view of a cell says; None where it does not, or with `at_end` is behind the log."""
    try:
        newest = [decision.version async for decision in client.newest(cell, 1)] if at_end else []
        return (await client.names(cell, own, at_least=newest[-1] if newest else None)).value
    except ClientUnavailable:
        return None


def several(own: str, jobs: Sequence[str]) -> str:
    """`several tenants have a job hello: name one, as search/hello or vision/hello, or give --tenant`."""
    *first, last = jobs[:NAMED_MAX]
    if len(jobs) > NAMED_MAX:
        first, last = [*first, last], f"one of {len(jobs) - NAMED_MAX:,} more"
    return f"several tenants have a job {own}: name one, as {', '.join(first)} or {last}, or give --tenant"
