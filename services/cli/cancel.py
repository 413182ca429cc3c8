"""`fallow cancel`."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.failures import Exit, end_with
from services.cli.output import AsJson, CellName, print_json, print_line
from services.cli.patience import patiently
from services.cli.submit import words
from shared.client.port import CellClient, Mark, News
from shared.events import effects as e
from shared.events.jobs import JobRejected
from shared.events.reasons import StopReason
from shared.runtime.clocks import monotonic_ms

app = typer.Typer()


@app.command()
def cancel(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)],
    tenant: Annotated[str | None, typer.Option(help="Whose job it is; looked up if it is not given.")] = None,
    reason: Annotated[str, typer.Option(help="Words for the audit trail.")] = "",
    timeout_s: Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")] = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Stop a job, wherever it is: at once while it waits, else when its nodes have stopped it."""
    access = access_of(context)
    news = run(_cancel(access, job_id, tenant, cell, reason, timeout_s * 1000))
    if news is None:
        end_with(Exit.AWAY, f"fallow: no answer yet about {job_id}; the request is on its way")
    is_refused = isinstance(news.event, JobRejected | e.JobRefused)
    if as_json:
        print_json({"job": job_id, "ok": not is_refused, "answer": words(news)})
    else:
        print_line(words(news))
    if is_refused:
        raise typer.Exit(Exit.NO)


async def _cancel(
    access: Access, job_id: str, tenant: str | None, cell: str | None, reason: str, wait_ms: int
) -> News | None:
    async with access.client() as client:
        if tenant is None or cell is None:
            tenant, cell = await _owner(client, job_id, tenant, cell)
        mark = await client.cancel(job_id, tenant, cell=cell, reason=reason)
        return await _answer(client, mark, job_id, wait_ms)


async def _owner(client: CellClient, job_id: str, tenant: str | None, cell: str | None) -> tuple[str, str | None]:
    """Whose job it is and in which cell, as far as that is not given."""
    for name in client.cells if cell is None else (cell,):
        row = (await patiently(lambda name=name: client.job(name, job_id))).value  # type: ignore[misc]
        if row is not None:
            return tenant or row.tenant, name
    if tenant is None:
        end_with(Exit.NO, f"fallow: no cell knows a job {job_id}")
    return tenant, cell


async def _answer(client: CellClient, mark: Mark, job_id: str, wait_ms: int) -> News | None:
    deadline = monotonic_ms() + wait_ms
    async with aclosing(client.news(mark)) as found:
        async for some in found:
            for news in some:
                if news.job == job_id and _is_answer(news):
                    return news
            if monotonic_ms() > deadline:
                return None
    return None


def _is_answer(news: News) -> bool:
    match news.event:
        case JobRejected(command=command):
            return command == "cancel"
        case e.JobStopping(why=why):
            return why is StopReason.CANCELLED
        case e.JobCancelled() | e.JobRefused():
            return True
    return False
