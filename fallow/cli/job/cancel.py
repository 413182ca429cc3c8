"""`fallow cancel`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.failures import Exit, end_with
from fallow.cli.ids import an_id
from fallow.cli.job.standing import are_stopping, rows_of, statuses
from fallow.cli.job.submit import words
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_line
from fallow.shared.client.answers import is_no_to
from fallow.shared.client.port import CellClient, ClientUnavailable, Mark, News
from fallow.shared.cluster.model.arrays import is_element_of
from fallow.shared.cluster.model.job import FINAL, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import StopReason
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.view.rows import JobRow

app = typer.Typer()

LOOK_AFTER_MS = 2_000
"""A job that stops for an earlier cancel gets no answer: after so long the view is asked."""


@app.command()
def cancel(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", callback=an_id, help="The job's id.", show_default=False)],
    tenant: Annotated[str | None, typer.Option(help="Whose job it is; looked up if it is not given.")] = None,
    reason: Annotated[str, typer.Option(help="Words for the audit trail.")] = "",
    timeout_s: Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")] = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Stop a job, wherever it is: at once while it waits, else when its nodes have stopped it."""
    access = access_of(context)
    cell = None if cell is None else access.cell(cell)
    news = run(_cancel(access, job_id, tenant, cell, reason, timeout_s * 1000))
    if isinstance(news, JobRow):
        _was_over(news, as_json=as_json)
        return
    if isinstance(news, tuple):
        _stops_already(job_id, news, as_json=as_json)
        return
    if not news:
        end_with(Exit.AWAY, f"fallow: no answer yet about {job_id}; the request is on its way")
    is_refused = isinstance(news[0].event, JobRejected | e.JobRefused)
    is_array = news[0].job != job_id
    text = of_array(job_id, news) if is_array else words(news[0])
    if as_json:
        more = {"elements": len(news)} if is_array else {}
        print_json({"job": job_id, "ok": not is_refused, "answer": text, **more})
    else:
        print_line(text)
    if is_refused:
        raise typer.Exit(Exit.NO)


async def _cancel(
    access: Access, job_id: str, tenant: str | None, cell: str | None, reason: str, wait_ms: int
) -> list[News] | JobRow | tuple[JobRow, ...]:
    async with access.client() as client:
        return await outcome_of(client, job_id, tenant, cell, reason, wait_ms)


async def outcome_of(
    client: CellClient, job_id: str, tenant: str | None, cell: str | None, reason: str, wait_ms: int
) -> list[News] | JobRow | tuple[JobRow, ...]:
    """The answers, one for each element of an array, none if none comes in time; or the row of a job that was over
    before; or, where the job stops already for an earlier cancel and so gets no answer, its rows.
    """
    if tenant is None or cell is None:
        cell, row = await row_of(client, job_id, cell)
        if row is None and tenant is None:
            end_with(Exit.NO, f"fallow: no cell knows a job {job_id}")
        if row is not None and row.id == job_id and row.status in FINAL:
            return row
        tenant = tenant or (row.tenant if row is not None else "")
    mark, is_answer = await client.cancel(job_id, tenant, cell=cell, reason=reason), partial(_is_answer, tenant)
    found = await answers(client, mark, job_id, min(wait_ms, LOOK_AFTER_MS), is_answer)
    if found:
        return found
    with contextlib.suppress(ClientUnavailable):  # the request is sent; the log answers without the view, too
        rows = () if cell is None else await rows_of(client, cell, job_id)
        if are_stopping(rows):
            return rows
    return await answers(client, mark, job_id, max(0, wait_ms - LOOK_AFTER_MS), is_answer)


def of_array(array: str, news: list[News]) -> str:
    """What the answers about elements come to."""
    stop = sum(isinstance(each.event, e.JobStopping) for each in news)
    done = sum(isinstance(each.event, e.JobCancelled) for each in news)
    parts = [f"{counted(stop, 'element')} must stop"] if stop else []
    parts += [f"{counted(done, 'element')} {'is' if done == 1 else 'are'} cancelled"] if done else []
    parts += [f"{counted(len(news) - stop - done, 'request')} refused"] if len(news) > stop + done else []
    return f"Array {array}: {', '.join(parts)}."


async def row_of(client: CellClient, job_id: str, cell: str | None) -> tuple[str | None, JobRow | None]:
    """The job, or an element of the array that the view still knows, and its cell."""
    for name in client.cells if cell is None else (cell,):
        for row in await rows_of(client, name, job_id):
            return name, row
    return cell, None


def _stops_already(job_id: str, rows: tuple[JobRow, ...], *, as_json: bool) -> None:
    """A second cancel changes nothing while the first is being carried out."""
    is_array = rows[0].id != job_id
    text = f"Job {job_id} is being stopped already."
    if is_array:
        text = f"Array {job_id} is being stopped already: {statuses(rows)}."
    if as_json:
        print_json({"job": job_id, "ok": True, "answer": text, **({"elements": 0} if is_array else {})})
    else:
        print_line(text)


def _was_over(row: JobRow, *, as_json: bool) -> None:
    """To cancel what is cancelled is done already; what ended otherwise cannot be cancelled any more."""
    is_cancelled = row.status is JobStatus.CANCELLED
    text = f"Job {row.id} was over before: it is {row.status}."
    if as_json:
        print_json({"job": row.id, "ok": is_cancelled, "answer": text})
    else:
        print_line(text)
    if not is_cancelled:
        raise typer.Exit(Exit.NO)


async def answer(
    client: CellClient, mark: Mark, job_id: str, wait_ms: int, is_answer: Callable[[News], bool]
) -> News | None:
    """The first news about the job, or about an element of the array, that answers; None if none comes in time."""
    deadline = monotonic_ms() + wait_ms
    async with aclosing(client.news(mark)) as found:
        async for some in found:
            for news in some:
                if _is_about(news, job_id) and is_answer(news):
                    return news
            if monotonic_ms() > deadline:
                return None
    return None


async def answers(
    client: CellClient, mark: Mark, job_id: str, wait_ms: int, is_answer: Callable[[News], bool]
) -> list[News]:
    """The answer about the job; of an array those about its elements, until a look finds no more of them."""
    deadline, kept = monotonic_ms() + wait_ms, dict[str, News]()
    async with aclosing(client.news(mark)) as found:
        async for some in found:
            fresh = {news.job: news for news in some if news.job and _is_about(news, job_id) and is_answer(news)}
            if job_id in fresh:
                return [fresh[job_id]]
            is_last = bool(kept) and not fresh.keys() - kept.keys()
            kept = {**fresh, **kept}
            if is_last or monotonic_ms() > deadline:
                break
    return list(kept.values())


def _is_about(news: News, job_id: str) -> bool:
    return news.job is not None and (news.job == job_id or is_element_of(news.job, job_id))


def _is_answer(tenant: str, news: News) -> bool:
    match news.event:
        case e.JobStopping(why=why):
            return why is StopReason.CANCELLED
        case e.JobCancelled():
            return True
    return is_no_to(news.event, "cancel", tenant)
