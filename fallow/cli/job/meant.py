"""The job that a mistyped id may have meant: of those that the view lists, live ones and those that it remembers."""

from __future__ import annotations

from contextlib import suppress

from fallow.cli.access import Access
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.near import meant
from fallow.shared.view.reader import LIMIT_MOST


async def hint_for(access: Access, job: str, cell: str | None) -> str:
    """` (did you mean hello?)`, or nothing: also where the view does not say."""
    async with access.client() as client:
        return await hint_by(client, job, cell)


async def hint_by(client: CellClient, job: str, cell: str | None) -> str:
    """The same of a client that is open."""
    return meant(job, await known_jobs(client, cell))


async def known_jobs(client: CellClient, cell: str | None) -> list[str]:
    """The ids of the jobs that the view lists, of this cell or of all; none of a cell of which it does not say."""
    known: list[str] = []
    for name in client.cells if cell is None else (cell,):
        with suppress(ClientUnavailable):
            known += [row.id for row in (await client.jobs(name, limit=LIMIT_MOST)).value]
    return known
