"""The job that a mistyped id may have meant: of those that the view lists, live ones and those that it remembers."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from fallow.cli.access import Access
from fallow.shared.client.port import CellClient, ClientUnavailable
from fallow.shared.events.job_ids import own_id
from fallow.shared.near import meant, near
from fallow.shared.view.reader import LIMIT_MOST


async def hint_for(access: Access, job: str, cell: str | None) -> str:
    """` (did you mean hello?)`, or nothing: also where the view does not say."""
    async with access.client() as client:
        return await hint_by(client, job, cell)


async def hint_by(client: CellClient, job: str, cell: str | None) -> str:
    """The same of a client that is open."""
    return meant_job(job, await known_jobs(client, cell))


def meant_job(typed: str, known: Collection[str]) -> str:
    """The same among these jobs: an id alone is compared with what their tenants call them."""
    if "/" in typed:
        return meant(typed, known)
    by_own = {own_id(job): job for job in known}
    found = near(typed, by_own)
    return "" if found is None else f" (did you mean {by_own[found]}?)"


async def known_jobs(client: CellClient, cell: str | None) -> list[str]:
    """The jobs, in full, that the view lists, of this cell or of all; none of a cell of which it does not say."""
    known: list[str] = []
    for name in client.cells if cell is None else (cell,):
        with suppress(ClientUnavailable):
            known += [row.id for row in (await client.jobs(name, limit=LIMIT_MOST)).value]
    return known
