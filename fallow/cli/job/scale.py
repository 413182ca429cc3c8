"""`fallow job scale`: how many replicas a service has."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_job
from fallow.cli.errors.failures import Exit, end_with
from fallow.cli.errors.unanswered import Passes, check_silence, unanswered
from fallow.cli.job.cancel import answer, whereabouts
from fallow.cli.job.meant import hint_by, hint_for, no_such_job
from fallow.cli.job.named import TenantName, one_in_full
from fallow.cli.job.outcomes import Outcome, tell_each
from fallow.cli.job.submit import words
from fallow.cli.output.output import AsJson, CellName
from fallow.shared.client.answers import is_no_to
from fallow.shared.client.port import News
from fallow.shared.events.effects import JobUpdated
from fallow.shared.events.fields.job_ids import parted
from fallow.shared.events.fields.values import WORKERS_MAX
from fallow.shared.events.submissions import JobChanges

WAIT_S = 30
"""How long to wait for the answer."""


def scale(
    context: typer.Context,
    job_id: Annotated[
        str, typer.Argument(metavar="ID", callback=a_job, help="The service's id, or TENANT/ID.", show_default=False)
    ],
    workers: Annotated[
        int, typer.Argument(min=1, max=WORKERS_MAX, help="How many replicas it shall have.", show_default=False)
    ],
    fewest: Annotated[
        int | None, typer.Option("--fewest", min=1, max=WORKERS_MAX, help="With how many it may start.")
    ] = None,
    tenant: TenantName = None,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Give a service more replicas or fewer. The others go on; new ones come as there is room."""
    access, changes = access_of(context), JobChanges(workers=workers, workers_min=fewest)
    cell = None if cell is None else access.cell(cell)
    job_id = run(one_in_full(access, job_id, tenant, cell, at_end=True)).job
    news = run(_scale(access, job_id, parted(job_id)[0] or tenant, cell, changes))
    if news is None:
        end_with(Exit.AWAY, f"fallow: {unanswered(job_id, Passes.ADMISSION, WAIT_S)}")
    hint = run(hint_for(access, job_id, cell)) if no_such_job(news.event) else ""
    tell_each([told_of(job_id, news, hint)], as_json=as_json)


def told_of(job: str, news: News, hint: str) -> Outcome:
    """The answer in words, with what may have been meant where there is no such job."""
    code = Exit.OK if isinstance(news.event, JobUpdated) else Exit.NO
    return Outcome(job, words(news), code, hint=hint and f"no job {job}{hint}")


async def _scale(access: Access, job_id: str, tenant: str | None, cell: str | None, changes: JobChanges) -> News | None:
    """The answer, or None if there is none in time. Raises ClientUnavailable."""
    async with access.client() as client:
        if tenant is None or cell is None:
            there = await whereabouts(client, job_id, cell)
            cell = there.cell
            if not there.is_known and tenant is None:
                end_with(Exit.NO, f"fallow: no cell knows a job {job_id}{await hint_by(client, job_id, cell)}")
            tenant = tenant or (there.row.tenant if there.row is not None else parted(job_id)[0])
        mark = await client.update(job_id, tenant, changes, cell=cell)
        found = await answer(client, mark, job_id, WAIT_S * 1000, partial(_is_answer, tenant, changes))
        if found is None:
            check_silence(client, mark, job_id, cell)
        return found


def _is_answer(tenant: str, changes: JobChanges, news: News) -> bool:
    """Whether this answers these changes. Another update of the same job may be answered meanwhile."""
    if isinstance(news.event, JobUpdated):
        return news.event.workers == changes.workers and changes.workers_min in (None, news.event.workers_min)
    return is_no_to(news.event, "update", tenant)
