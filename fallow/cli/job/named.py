"""The job that is meant on the command line: TENANT/ID is the job itself; the id alone is a job of the tenant that
`--tenant` names, or the only one of that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from fallow.cli.access import Access
from fallow.cli.failures import Exit, end_with
from fallow.cli.ids import a_tenant
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.events.job_ids import full_id
from fallow.shared.near import NAMED_MOST

TenantName = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        envvar="FALLOW_TENANT",
        callback=a_tenant,
        help="Whose jobs are named by their ids alone; looked up if it is not given.",
    ),
]


async def in_full(
    client: CellClient, typed: Sequence[str], tenant: str | None, cell: str | None, *, at_end: bool = False
) -> list[str]:
    """Each of these jobs in full, once; one that no tenant has stays as it was typed. Ends the command where several
    tenants have one, or one tenant in several cells. `at_end`: by all that the log holds now, for a command that
    changes the job. Raises ClientUnavailable.
    """
    found: dict[str, str] = {}
    for each in dict.fromkeys(typed):
        if "/" in each or tenant is not None:
            found[each] = full_id(tenant or "", each)
            continue
        places = await matches(client, each, cell, at_end=at_end)
        jobs = sorted({job for _, job in places})
        if len(jobs) > 1:
            end_with(Exit.USAGE, f"fallow: {several(each, jobs)}")
        if len(places) > 1:
            there = " and ".join(f"in {name}" for name, _ in places[:NAMED_MOST])
            end_with(Exit.USAGE, f"fallow: {jobs[0]} is a job {there}: name its cell by --cell")
        found[each] = jobs[0] if jobs else each
    return list(dict.fromkeys(found.values()))


async def one_in_full(access: Access, typed: str, tenant: str | None, cell: str | None, *, at_end: bool = False) -> str:
    """The same of one job, by a client of its own; the command's own client tells of a fence."""
    async with access.client(tells_fence=False) as client:
        return (await in_full(client, [typed], tenant, cell, at_end=at_end))[0]


async def matches(client: CellClient, own: str, cell: str | None, *, at_end: bool = False) -> list[tuple[str, str]]:
    """The jobs of this id, in full, each behind its cell, as the view knows them. Where the view of a cell does not
    say, or none knows any, the log tells. Raises ClientUnavailable.
    """
    cells = client.cells if cell is None else (cell,)
    seen = {name: await _seen(client, name, own, at_end=at_end) for name in cells}
    is_found = any(seen.values())
    for name, jobs in seen.items():
        if jobs is None or not is_found:
            seen[name] = await client.names_told(name, own)
    return [(name, job) for name, jobs in seen.items() for job in sorted(jobs or ())]


async def _seen(client: CellClient, cell: str, own: str, *, at_end: bool) -> Sequence[str] | None:
    """What the view of a cell says; None where it does not, or with `at_end` is behind the log."""
    try:
        newest = [decision.version async for decision in client.newest(cell, 1)] if at_end else []
        return (await client.names(cell, own, at_least=newest[-1] if newest else None)).value
    except ClientUnavailable:
        return None


def several(own: str, jobs: Sequence[str]) -> str:
    """`several tenants have a job hello: name one, as search/hello or vision/hello, or give --tenant`."""
    *first, last = jobs[:NAMED_MOST]
    if len(jobs) > NAMED_MOST:
        first, last = [*first, last], f"one of {len(jobs) - NAMED_MOST} more"
    return f"several tenants have a job {own}: name one, as {', '.join(first)} or {last}, or give --tenant"
