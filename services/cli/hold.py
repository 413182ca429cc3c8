"""`fallow hold`: a waiting job that shall not start."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.ids import an_id
from services.cli.operate import answer_of, operation, tell_answer
from services.cli.output import AsJson, CellName, print_json, print_line
from services.cli.patience import patiently
from shared.client.answers import is_no_to
from shared.client.port import CellClient, News
from shared.cluster.arrays import element_id, is_element_of
from shared.cluster.job import JobStatus
from shared.events.effects import JobHeld, JobReleased
from shared.events.operations import HoldJob, Operation

app = typer.Typer()

LOOK_AFTER_MS = 2_000
"""A job that is as wished already gets no answer: after so long the view is asked."""

JobName = Annotated[
    str, typer.Argument(metavar="JOB", callback=an_id, help="The job's id, or an array's.", show_default=False)
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@app.command()
def hold(
    context: typer.Context, job: JobName, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Keep a waiting job from starting, until it is released."""
    access = access_of(context)
    wish = operation(HoldJob, cell=access.cell(cell), job=job)
    give(access, wish, job, JobStatus.HELD, timeout_s, as_json=as_json)


def give(access: Access, wish: Operation, job: str, wanted: JobStatus, timeout_s: int, *, as_json: bool) -> None:
    """Give the command and tell what came of it. `wanted` is how the job waits when it is done."""
    answer = run(_answer(access, wish, job, wanted, timeout_s * 1000))
    if not isinstance(answer, JobStatus):
        tell_answer({"job": job}, answer, as_json=as_json)
        return
    text = f"Job {job} is {answer} already."
    if as_json:
        print_json({"job": job, "ok": True, "version": None, "answer": text})
    else:
        print_line(text)


async def _answer(
    access: Access, wish: Operation, job: str, wanted: JobStatus, wait_ms: int
) -> News | JobStatus | None:
    """The log's answer, or the status that the job had already, or None if there is neither in time."""
    request = "hold" if isinstance(wish, HoldJob) else "release"

    def is_answer(news: News) -> bool:
        is_it = news.job is not None and (news.job == job or is_element_of(news.job, job))
        return is_it and (isinstance(news.event, JobHeld | JobReleased) or is_no_to(news.event, request, None))

    async with access.client() as client:
        mark = await client.operate(wish)
        answer = await answer_of(client, mark, is_answer, min(wait_ms, LOOK_AFTER_MS))
        if answer is None and await _status(client, wish.cell, job) is wanted:
            return wanted
        return answer or await answer_of(client, mark, is_answer, max(0, wait_ms - LOOK_AFTER_MS))


async def _status(client: CellClient, cell: str, job: str) -> JobStatus | None:
    for job_id in (job, element_id(job, 0)):  # an array has no row of its own while it lives
        row = (await patiently(partial(client.job, cell, job_id))).value
        if row is not None:
            return row.status
    return None
