"""The job that a mistyped id, or an id under a wrong tenant, may have meant: of those that the view lists, live ones
and those that it remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from fallow.cli.access import Access
from fallow.shared.client.port import CellClient, ClientUnavailable, News
from fallow.shared.events.effects import JobRefused
from fallow.shared.events.fields.job_ids import own_id, parted
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RefuseCode, RejectCode
from fallow.shared.near import listed, meant, near
from fallow.shared.view.reader import LIMIT_MAX


async def hint_for(access: Access, job: str, cell: str | None) -> str:
    """` (did you mean hello?)`, or nothing: also where the view does not say."""
    async with access.client() as client:
        return await hint_by(client, job, cell)


async def hint_by(client: CellClient, job: str, cell: str | None) -> str:
    """The hint by a client that is open. What is really there counts more than what is only like it; where this very
    job is there nothing else was meant.
    """
    tenant, own = parted(job)
    found = [(name, each) for name in client.cells for each in await _names(client, name, own)] if tenant else []
    told = elsewhere(client, found, job, cell)
    if told:
        return f" ({told})"
    return "" if any(each == job for _, each in found) else meant_job(job, await known_jobs(client, cell))


def elsewhere(client: CellClient, found: Sequence[tuple[str, str]], job: str, cell: str | None) -> str:
    """`teamB has no job train; there is teamA/train`, or in which other cell the job is; nothing where no job has the
    id, where it stands alone, and where the view does not say. `found` are the jobs that have the id, each behind its
    cell.
    """
    tenant, own = parted(job)
    cells = [name for name, each in found if each == job]
    if cells:
        return f"it is a job of cell {listed(cells)}" if cell is not None and cell not in cells else ""
    several = len(client.cells) > 1
    others = [f"{each} in {name}" if several else each for name, each in sorted(found, key=lambda it: it[1])]
    return f"{tenant} has no job {own}; there {'is' if len(others) == 1 else 'are'} {listed(others)}" if others else ""


async def hint_of_no(client: CellClient, job: str, cell: str | None, answers: Sequence[News]) -> str:
    """What may have been meant where the answers say that there is no such job; else nothing."""
    if not any(no_such_job(news.event) for news in answers):
        return ""
    hint = await hint_by(client, job, cell)
    return hint and f"no job {job}{hint}"


async def _names(client: CellClient, cell: str, own: str) -> tuple[str, ...]:
    with suppress(ClientUnavailable):
        return (await client.names(cell, own)).value
    return ()


def no_such_job(event: object) -> bool:
    """Whether this is the answer that there is no such job, or no such tenant."""
    if isinstance(event, JobRefused):
        return event.code is RefuseCode.UNKNOWN_JOB
    return isinstance(event, JobRejected) and event.code is RejectCode.UNKNOWN_TENANT


def meant_job(typed: str, known: Collection[str]) -> str:
    """The job among the known ones that was meant: an id alone is compared with what their tenants call them."""
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
            known += [row.id for row in (await client.jobs(name, limit=LIMIT_MAX)).value]
    return known
