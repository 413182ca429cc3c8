"""`fallow submit`."""

from __future__ import annotations

from contextlib import aclosing
from enum import StrEnum
from typing import Annotated

import typer

from services.cli.access import Access, access_of, run
from services.cli.failures import Exit, say
from services.cli.job_file import read_jobs, read_text
from services.cli.output import AsJson, print_json, print_line
from services.cli.sentences import rejection, sentence
from shared.client.answers import BAD, Progress, Stage
from shared.client.port import CellClient, Mark, News
from shared.events.jobs import JobRejected
from shared.events.values import JobSpec
from shared.runtime.clocks import monotonic_ms

app = typer.Typer()


class Until(StrEnum):
    """How far jobs are followed."""

    ACCEPTED = "accepted"
    STARTED = "started"
    ENDED = "ended"


GOALS = {Until.ACCEPTED: Stage.WAITING, Until.STARTED: Stage.STARTED, Until.ENDED: Stage.FINISHED}


@app.command()
def submit(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="YAML or JSON, one job or many; - is standard input.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant of jobs that name none.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait, and tell what becomes of each job.")] = False,
    until: Annotated[Until | None, typer.Option(help="How far to wait; --wait alone waits for the start.")] = None,
    timeout_s: Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait at most.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Submit jobs. Each is checked here before any is sent; the same job sent again does no harm.

    With --wait: exit 1 if one is rejected, refused, failed or cancelled, or not so far in time; exit 3 if there is no
    answer.
    """
    text, name = read_text(file)
    jobs = read_jobs(text, name, tenant)
    goal = until or (Until.STARTED if wait else None)
    progress = run(_submit(access_of(context), jobs, goal, timeout_s * 1000, quiet=as_json))
    if as_json:
        stages = {job: stage.value for job, stage in progress.stages.items()}
        print_json({"submitted": len(jobs), "jobs": stages if goal else {job.id: "submitted" for job in jobs}})
    elif goal is None:
        print_line(f"{len(jobs)} submitted: {jobs[0].id}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""))
    if goal is not None:
        _end(progress, goal)


async def _submit(access: Access, jobs: list[JobSpec], goal: Until | None, wait_ms: int, *, quiet: bool) -> Progress:
    progress = Progress.of(job.id for job in jobs)
    async with access.client() as client:
        mark = await client.submit(jobs)
        if goal is not None:
            await follow(client, mark, progress, GOALS[goal], wait_ms, quiet=quiet)
    return progress


async def follow(
    client: CellClient, mark: Mark, progress: Progress, goal: Stage, wait_ms: int, *, quiet: bool = False
) -> None:
    """Tell each step of the jobs until all have reached the goal, or the time is over."""
    deadline = monotonic_ms() + wait_ms
    async with aclosing(client.news(mark)) as found:
        async for some in found:
            for news in some:
                if progress.take(news) and not quiet:
                    print_line(words(news))
            if progress.have(goal) or monotonic_ms() > deadline:
                return


def words(news: News) -> str:
    """One piece of news as a sentence."""
    return rejection(news.event) if isinstance(news.event, JobRejected) else sentence(news.event)


def _end(progress: Progress, goal: Until) -> None:
    late = [job for job, stage in progress.stages.items() if stage is Stage.UNANSWERED]
    if late:
        say(f"fallow: no answer yet for {late[0]}" + (f" and {len(late) - 1} more" if len(late) > 1 else ""))
        raise typer.Exit(Exit.AWAY)
    if not progress.have(GOALS[goal]):
        say(f"fallow: not all {goal.value} in time")
        raise typer.Exit(Exit.NO)
    if any(stage in BAD for stage in progress.stages.values()):
        raise typer.Exit(Exit.NO)
