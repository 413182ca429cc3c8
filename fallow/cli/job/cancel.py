"""`fallow cancel`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, in_turn
from fallow.cli.arguments.ids import a_job, a_reason
from fallow.cli.errors.failures import Exit
from fallow.cli.errors.unanswered import AnswerUnread, Passes, check_silence, passed_over
from fallow.cli.job.meant import hint_of_no, known_jobs, meant_job
from fallow.cli.job.named import TenantName, in_full, tells_of_reading
from fallow.cli.job.outcomes import Outcome, no_answer, tell_each
from fallow.cli.job.story.standing import are_stopping, by_elements, rows_of, statuses
from fallow.cli.job.submit import words
from fallow.cli.log.sentences import stands
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName
from fallow.shared.client.answers import is_no_to
from fallow.shared.client.port import CellClient, ClientUnavailable, Mark, News, ViewUnanswering
from fallow.shared.cluster.model.arrays import element_id, is_element_of
from fallow.shared.cluster.model.job import FINAL, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.job_ids import parted
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import RefuseCode, StopReason
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.view.rows import JobRow

app = typer.Typer()

LOOK_AFTER_MS = 2_000
"""A job that stops for an earlier cancel gets no answer: after so long the view is asked."""

Known = list[News] | JobRow | tuple[JobRow, ...]
Found = Known | None
"""The answers, one for each element of an array, none if none comes in time; or the row of a job that was over before;
or its rows, where the job stops already for an earlier cancel and so gets no answer, or where it is an array that was
over before; or None where no cell knows it.
"""


@app.command()
def cancel(
    context: typer.Context,
    job_ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", callback=a_job, help="The jobs' ids, or TENANT/ID.", show_default=False),
    ],
    tenant: TenantName = None,
    reason: Annotated[str, typer.Option(callback=a_reason, help="Words for the audit trail.")] = "",
    timeout_s: Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for each answer.")] = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Stop jobs, wherever they are: at once while they wait, else when their nodes have stopped them.

    Exit 1 if one is refused or over already, 3 if one is not answered in time.
    """
    access = access_of(context)
    cell = None if cell is None else access.cell(cell)
    tell_each(
        in_turn(_told_of_each(access, [*dict.fromkeys(job_ids)], tenant, cell, reason, timeout_s)), as_json=as_json
    )


async def _told_of_each(
    access: Access, job_ids: Sequence[str], tenant: str | None, cell: str | None, reason: str, timeout_s: int
) -> AsyncGenerator[Outcome, None]:
    async with access.client() as client:
        jobs = await in_full(client, job_ids, tenant, cell, at_end=True)
        async with aclosing(told_of_each(client, jobs, tenant, cell, reason, timeout_s)) as told:
            async for outcome in told:
                yield outcome


async def told_of_each(
    client: CellClient, job_ids: Sequence[str], tenant: str | None, cell: str | None, reason: str, timeout_s: int
) -> AsyncGenerator[Outcome, None]:
    """What comes of the cancel of each of these, each followed for so long. For ids that no cell knows the view is
    asked once which others there are. Raises ClientUnavailable.
    """
    known: list[str] | None = None
    for job_id in job_ids:
        try:
            found = await outcome_of(client, job_id, tenant, cell, reason, timeout_s * 1000)
        except AnswerUnread as error:
            yield Outcome(job_id, str(error), Exit.AWAY, is_from_cell=False)
            continue
        if found is not None:
            news = found if isinstance(found, list) else []
            yield replace(told_of(job_id, found, timeout_s), hint=await hint_of_no(client, job_id, cell, news))
            continue
        known = await known_jobs(client, cell) if known is None else known
        text = f"no cell knows a job {job_id}{meant_job(job_id, known)}"
        yield Outcome(job_id, text, Exit.NO, is_from_cell=False)


def told_of(job_id: str, found: Known, timeout_s: int) -> Outcome:
    """The outcome of one job that the cell knows, and that was followed for so long."""
    if isinstance(found, JobRow):
        return _was_over(found)
    if isinstance(found, tuple):
        is_over = all(row.status in FINAL for row in found)
        return _array_was_over(job_id, found) if is_over else _stops_already(job_id, found)
    if not found:
        return no_answer(job_id, Passes.ADMISSION, timeout_s)
    is_refused = isinstance(found[0].event, JobRejected | e.JobRefused)
    is_array = found[0].job != job_id
    text = of_array(job_id, found) if is_array else words(found[0])
    more = {"elements": len(found)} if is_array else {}
    return Outcome(job_id, text, Exit.NO if is_refused else Exit.OK, more=more)


async def outcome_of(
    client: CellClient, job_id: str, tenant: str | None, cell: str | None, reason: str, wait_ms: int
) -> Found:
    """What came of the cancel of one job, followed for `wait_ms`. Raises ClientUnavailable; AnswerUnread where there is
    no answer that can be read, and no sign either that the cell gave none.
    """
    tenant = parted(job_id)[0] or tenant
    if tenant is None or cell is None:
        there = await whereabouts(client, job_id, cell)
        cell, row = there.cell, there.row
        if not there.is_known and tenant is None:
            return None
        is_own = row is not None and tenant in (None, row.tenant)  # the cell says no to another tenant
        if row is not None and is_own and cell is not None and row.id == job_id and row.status in FINAL:
            rows = await by_elements(client, cell, job_id, (row,))
            return row if rows == (row,) else rows
        tenant = tenant or (row.tenant if row is not None else "")
    mark, is_answer = await client.cancel(job_id, tenant, cell=cell, reason=reason), partial(_is_answer, tenant)
    found = await answers(client, mark, job_id, min(wait_ms, LOOK_AFTER_MS), is_answer)
    if found:
        return found
    with contextlib.suppress(ClientUnavailable):  # the request is sent; the log answers without the view, too
        rows = () if cell is None else await rows_of(client, cell, job_id)
        if are_stopping(rows) and not passed_over(client, mark, cell):
            return rows
    found = await answers(client, mark, job_id, max(0, wait_ms - LOOK_AFTER_MS), is_answer)
    if not found:
        check_silence(client, mark, job_id, cell)
    return found


def of_array(array: str, news: list[News]) -> str:
    """What the answers about elements come to."""
    stop = sum(isinstance(each.event, e.JobStopping) for each in news)
    done = sum(isinstance(each.event, e.JobCancelled) for each in news)
    parts = [f"{counted(stop, 'element')} must stop"] if stop else []
    parts += [f"{counted(done, 'element')} {'is' if done == 1 else 'are'} cancelled"] if done else []
    parts += [f"{counted(len(news) - stop - done, 'request')} refused"] if len(news) > stop + done else []
    return f"Array {array}: {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The cell of a job, or of an array; and its row, or that of an element, where the view tells of one."""

    cell: str | None
    row: JobRow | None
    is_known: bool


async def whereabouts(client: CellClient, job_id: str, cell: str | None) -> Whereabouts:
    """Which cell knows the job: by the view, else by the log. Raises ClientUnavailable where the view does not answer
    and the log does not tell of the job.
    """
    cells = client.cells if cell is None else (cell,)
    try:
        for name in cells:
            for row in await rows_of(client, name, job_id):
                return Whereabouts(name, row, is_known=True)
    except ClientUnavailable as error:
        for name in cells:
            if await _is_in_the_log(client, name, job_id):
                return Whereabouts(name, None, is_known=True)
        if cell is None and isinstance(error, ViewUnanswering):
            raise ViewUnanswering(f"{error}; with --cell and TENANT/ID no view is needed") from error
        raise
    return Whereabouts(cell, None, is_known=False)


async def _is_in_the_log(client: CellClient, cell: str, job_id: str) -> bool:
    """Whether the log knows the job, or the first element of an array of this id."""
    for each in (job_id, element_id(job_id, 0)):
        with tells_of_reading(job_id, cell):
            async with aclosing(client.story(cell, each)) as told:
                async for _ in told:
                    return True
    return False


def _stops_already(job_id: str, rows: tuple[JobRow, ...]) -> Outcome:
    """A second cancel changes nothing while the first is being carried out."""
    if rows[0].id == job_id:
        return Outcome(job_id, f"Job {job_id} is being stopped already.")
    return Outcome(job_id, f"Array {job_id} is being stopped already: {statuses(rows)}.", more={"elements": 0})


def _was_over(row: JobRow) -> Outcome:
    """To cancel what is cancelled is done already; what ended otherwise cannot be cancelled any more."""
    code = Exit.OK if row.status is JobStatus.CANCELLED else Exit.NO
    return Outcome(row.id, f"Job {row.id} was over before: it {stands(row.status)}.", code)


def _array_was_over(array: str, rows: tuple[JobRow, ...]) -> Outcome:
    """The outcome for an array that was over: a second cancel is done where the first cancel reached an element."""
    code = Exit.OK if any(row.status is JobStatus.CANCELLED for row in rows) else Exit.NO
    return Outcome(array, f"Array {array} was over before: {statuses(rows)}.", code, more={"elements": 0})


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
    """Whether the news is about the job, or about an element of the array. A request of another sender for an element
    that is not there tells nothing.
    """
    if news.job is None or news.job == job_id or not is_element_of(news.job, job_id):
        return news.job == job_id
    is_unknown = isinstance(news.event, e.JobRefused) and news.event.code is RefuseCode.UNKNOWN_JOB
    return not is_unknown and not isinstance(news.event, JobRejected)


def _is_answer(tenant: str, news: News) -> bool:
    match news.event:
        case e.JobStopping(why=why):
            return why is StopReason.CANCELLED
        case e.JobCancelled():
            return True
    return is_no_to(news.event, "cancel", tenant)
