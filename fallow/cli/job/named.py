"""The job that is meant on the command line: TENANT/ID is the job itself; the id alone is a job of the tenant that
`--tenant` names, or the only one of that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from fallow.cli.access import Access
from fallow.cli.failures import Exit, end_with
from fallow.cli.ids import a_tenant
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.events.job_ids import full_id, parted
from fallow.shared.near import NAMED_MOST, listed

TenantName = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        envvar="FALLOW_TENANT",
        callback=a_tenant,
        help="Whose jobs are named by their ids alone; looked up if it is not given.",
    ),
]


async def in_full(client: CellClient, typed: Sequence[str], tenant: str | None, cell: str | None) -> list[str]:
    """Each of these jobs in full, once; one that no tenant has stays as it was typed. Ends the command where several
    tenants have one. Raises ClientUnavailable.
    """
    found = [await _matches(client, each, tenant, cell) for each in typed]
    for each, jobs in zip(typed, found, strict=True):
        if len(jobs) > 1:
            end_with(Exit.USAGE, f"fallow: {several(each, jobs)}")
    return list(dict.fromkeys(jobs[0] if jobs else each for each, jobs in zip(typed, found, strict=True)))


async def one_in_full(access: Access, typed: str, tenant: str | None, cell: str | None) -> str:
    """The same of one job, by a client of its own; the command's own client tells of a fence."""
    async with access.client(tells_fence=False) as client:
        return (await in_full(client, [typed], tenant, cell))[0]


async def _matches(client: CellClient, typed: str, tenant: str | None, cell: str | None) -> Sequence[str]:
    if "/" in typed or tenant is not None:
        return [full_id(tenant or "", typed)]
    return await matches(client, typed, cell)


async def matches(client: CellClient, own: str, cell: str | None) -> Sequence[str]:
    """The jobs of this id, in full, as the view knows them; where it knows none, or is away, as the log tells. Raises
    ClientUnavailable.
    """
    found: dict[str, None] = {}
    cells = client.cells if cell is None else (cell,)
    for name in cells:
        with suppress(ClientUnavailable):
            found |= dict.fromkeys((await client.names(name, own)).value)
    for name in () if found else cells:
        found |= dict.fromkeys(await client.names_told(name, own))
    return sorted(found)


def several(own: str, jobs: Sequence[str]) -> str:
    """`hello is a job of search and of vision: search/hello, vision/hello`."""
    *first, last = (f"of {parted(job)[0]}" for job in jobs[:NAMED_MOST])
    if len(jobs) > NAMED_MOST:
        first, last = [*first, last], f"of {len(jobs) - NAMED_MOST} more"
    return f"{own} is a job {', '.join(first)} and {last}: {listed(jobs)}"
