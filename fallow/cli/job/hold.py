"""`fallow hold`: a waiting job that shall not start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, run
from fallow.cli.ids import an_id
from fallow.cli.job.cancel import answers
from fallow.cli.job.standing import are_free, are_held, by_status, rows_of, statuses
from fallow.cli.node.operate import operation, tell_answer
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName, print_json, print_line
from fallow.shared.client.answers import is_no_to
from fallow.shared.client.port import CellClient, ClientUnavailable, News
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import JobHeld, JobReleased
from fallow.shared.events.operations import HoldJob, Operation
from fallow.shared.view.rows import JobRow

app = typer.Typer()

LOOK_AFTER_MS = 2_000
"""A job that is as wished already gets no answer: after so long the view is asked."""

JobName = Annotated[
    str, typer.Argument(metavar="JOB", callback=an_id, help="The job's id, or an array's.", show_default=False)
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for the answer.")]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a hold or a release: the log's answers, and how the job, or each element of the array, stands.
    Without answers it was as wished before, if there are rows, else nothing is known yet.
    """

    news: Sequence[News]
    rows: Sequence[JobRow] = ()

    def is_of_array(self, job: str) -> bool:
        """Whether elements answered, or stand, for the job."""
        about = self.news[0].job if self.news else self.rows[0].id if self.rows else job
        return about != job


@app.command()
def hold(
    context: typer.Context, job: JobName, timeout_s: Timeout = 30, cell: CellName = None, as_json: AsJson = False
) -> None:
    """Keep a waiting job from starting, until it is released."""
    access = access_of(context)
    wish = operation(HoldJob, cell=access.cell(cell), job=job)
    give(access, wish, job, timeout_s, as_json=as_json)


def give(access: Access, wish: Operation, job: str, timeout_s: int, *, as_json: bool) -> None:
    """Give the command, a hold or a release, and tell what came of it."""
    is_hold = isinstance(wish, HoldJob)
    outcome = run(_outcome(access, wish, job, timeout_s * 1000))
    is_array = outcome.is_of_array(job)
    if not is_array and (outcome.news or not outcome.rows):
        tell_answer({"job": job}, outcome.news[0] if outcome.news else None, as_json=as_json)
        return
    text = of_array(job, outcome, is_hold=is_hold) if is_array else _is_already(job, outcome.rows, is_hold=is_hold)
    if as_json:
        counts = {"elements": len(outcome.news), "others": by_status(_others(outcome))} if is_array else {}
        version = outcome.news[-1].version if outcome.news else None
        print_json({"job": job, "ok": True, "version": version, "answer": text, **counts})
    else:
        print_line(text)


def of_array(array: str, outcome: Outcome, *, is_hold: bool) -> str:
    """How many elements the command changed, and how many it did not, and what those are."""
    changed, others = len(outcome.news), _others(outcome)
    if not changed:
        return f"Array {array} is {'held already' if is_hold else 'not held'}: {statuses(others)}."
    are = "is" if changed == 1 else "are"
    done = f"{counted(changed, 'element')} {are} {'held back' if is_hold else 'no longer held'}"
    held_before = sum(row.status is JobStatus.HELD for row in others) if is_hold else 0
    rest = [row for row in others if not (is_hold and row.status is JobStatus.HELD)]
    before = f", {held_before} {'was' if held_before == 1 else 'were'} held before" if held_before else ""
    not_done = f"; {'not held' if is_hold else 'not held before'}: {statuses(rest)}" if rest else ""
    return f"Array {array}: {done}{before}{not_done}."


def _others(outcome: Outcome) -> list[JobRow]:
    """The elements that the command did not change."""
    changed = dict.fromkeys(news.job for news in outcome.news)
    return [row for row in outcome.rows if row.id not in changed]


def _is_already(job: str, rows: Sequence[JobRow], *, is_hold: bool) -> str:
    return f"Job {job} is held already." if is_hold else f"Job {job} is not held: it is {rows[0].status}."


async def _outcome(access: Access, wish: Operation, job: str, wait_ms: int) -> Outcome:
    async with access.client() as client:
        return await outcome_of(client, wish, job, wait_ms)


async def outcome_of(client: CellClient, wish: Operation, job: str, wait_ms: int) -> Outcome:
    """Give the command and follow it for `wait_ms`. Raises ClientUnavailable."""
    is_as_wished = are_held if isinstance(wish, HoldJob) else are_free
    is_answer = _answer_to("hold" if isinstance(wish, HoldJob) else "release")
    mark = await client.operate(wish)
    news = await answers(client, mark, job, min(wait_ms, LOOK_AFTER_MS), is_answer)
    if not news:
        rows = await rows_of(client, wish.cell, job)
        if is_as_wished(rows):
            return Outcome((), rows)
        news = await answers(client, mark, job, max(0, wait_ms - LOOK_AFTER_MS), is_answer)
    if not news or news[0].job == job:
        return Outcome(news)
    with contextlib.suppress(ClientUnavailable):  # the log has answered; the view only adds the other elements
        return Outcome(news, await rows_of(client, wish.cell, job, at_least=news[-1].version))
    return Outcome(news)


def _answer_to(request: str) -> Callable[[News], bool]:
    done = JobHeld if request == "hold" else JobReleased

    def is_answer(news: News) -> bool:
        return isinstance(news.event, done) or is_no_to(news.event, request, None)

    return is_answer
