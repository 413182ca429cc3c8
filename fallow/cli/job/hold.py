"""`fallow job hold`: a waiting job that shall not start."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from fallow.cli.access import Access, access_of, in_turn
from fallow.cli.arguments.ids import a_job
from fallow.cli.errors.failures import Exit
from fallow.cli.errors.unanswered import Passes, passed_over, unread_about
from fallow.cli.job.cancel import answers
from fallow.cli.job.meant import hint_of_no
from fallow.cli.job.named import TenantName, in_full
from fallow.cli.job.outcomes import Outcome, no_answer, tell_each
from fallow.cli.job.story.standing import are_free, are_held, by_status, rows_of, statuses
from fallow.cli.job.submit import words
from fallow.cli.log.sentences import stands
from fallow.cli.node.operate import REFUSALS, operation
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, CellName
from fallow.shared.client.answers import is_no_to
from fallow.shared.client.port import CellClient, ClientUnavailable, News
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import JobHeld, JobRefused, JobReleased
from fallow.shared.events.operations import HoldJob, Operation, ReleaseJob
from fallow.shared.events.reasons import RefuseCode
from fallow.shared.view.rows import JobRow

LOOK_AFTER_MS = 2_000
"""A job that is as wished already gets no answer: after so long the view is asked."""

JobNames = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...", callback=a_job, help="The ids, or TENANT/ID, of jobs and arrays.", show_default=False
    ),
]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait for each answer.")]


@dataclass(frozen=True, slots=True)
class Held:
    """What came of a hold or a release: the log's answers, and how the job, or each element of the array, stands.
    Without answers it was as wished before, if there are rows, else nothing is known yet, or `unread` says why no
    answer could be read.
    """

    news: Sequence[News]
    rows: Sequence[JobRow] = ()
    unread: str = ""

    def is_of_array(self, job: str) -> bool:
        """Whether elements answered, or stand, for the job."""
        about = self.news[0].job if self.news else self.rows[0].id if self.rows else job
        return about != job


def hold(
    context: typer.Context,
    jobs: JobNames,
    tenant: TenantName = None,
    timeout_s: Timeout = 30,
    cell: CellName = None,
    as_json: AsJson = False,
) -> None:
    """Keep waiting jobs from starting, until they are released.

    Exit 1 if one is refused, 3 if one is not answered in time.
    """
    access = access_of(context)
    name = access.cell(cell)
    give(access, partial(operation, HoldJob, cell=name), Jobs(jobs, tenant, name), timeout_s, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs as they were typed, whose those are that are named by their ids alone, and their cell."""

    typed: Sequence[str]
    tenant: str | None
    cell: str


def give(
    access: Access, wish_of: Callable[..., HoldJob | ReleaseJob], jobs: Jobs, timeout_s: int, *, as_json: bool
) -> None:
    """Give the commands, holds or releases, one after the other, and tell what came of each."""
    tell_each(in_turn(_told_of_each(access, wish_of, jobs, timeout_s)), as_json=as_json)


async def _told_of_each(
    access: Access, wish_of: Callable[..., HoldJob | ReleaseJob], jobs: Jobs, timeout_s: int
) -> AsyncGenerator[Outcome, None]:
    async with access.client() as client:
        for job in await in_full(client, jobs.typed, jobs.tenant, jobs.cell, at_end=True):
            wish = wish_of(job=job)
            found = await outcome_of(client, wish, wish.job, timeout_s * 1000)
            yield replace(told_of(wish, found, timeout_s), hint=await hint_of_no(client, job, jobs.cell, found.news))


def told_of(wish: HoldJob | ReleaseJob, found: Held, timeout_s: int) -> Outcome:
    """The outcome of one job, or array, for which the command has waited so long."""
    job, is_hold = wish.job, isinstance(wish, HoldJob)
    if found.unread:
        return Outcome(job, found.unread, Exit.AWAY, is_from_cell=False)
    if not found.news and not found.rows:
        return no_answer(job, Passes.PLACEMENT, timeout_s)
    version = found.news[-1].version if found.news else None
    if found.is_of_array(job):
        counts = {"elements": len(found.news), "others": by_status(_others(found))}
        return Outcome(job, of_array(job, found, is_hold=is_hold), more={"version": version, **counts})
    if not found.news:
        return Outcome(job, _is_already(job, found.rows, is_hold=is_hold), more={"version": None})
    event = found.news[0].event
    code = Exit.NO if isinstance(event, REFUSALS) else Exit.OK
    said = words(found.news[0])
    if not is_hold and isinstance(event, JobRefused) and event.code is RefuseCode.WRONG_STATE:
        said = f"Nothing to release: {job} is not held ({event.text})."
    return Outcome(job, said, code, more={"version": found.news[0].version})


def of_array(array: str, outcome: Held, *, is_hold: bool) -> str:
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


def _others(outcome: Held) -> list[JobRow]:
    """The elements that the command did not change."""
    changed = dict.fromkeys(news.job for news in outcome.news)
    return [row for row in outcome.rows if row.id not in changed]


def _is_already(job: str, rows: Sequence[JobRow], *, is_hold: bool) -> str:
    return f"Job {job} is held already." if is_hold else f"Job {job} is not held: it {stands(rows[0].status)}."


async def outcome_of(client: CellClient, wish: Operation, job: str, wait_ms: int) -> Held:
    """Give the command and follow it for `wait_ms`. Raises ClientUnavailable."""
    is_as_wished = are_held if isinstance(wish, HoldJob) else are_free
    is_answer = _answer_to("hold" if isinstance(wish, HoldJob) else "release")
    mark = await client.operate(wish)
    news = await answers(client, mark, job, min(wait_ms, LOOK_AFTER_MS), is_answer)
    if not news:
        rows = await rows_of(client, wish.cell, job)
        if is_as_wished(rows) and not passed_over(client, mark, wish.cell):
            return Held((), rows)
        news = await answers(client, mark, job, max(0, wait_ms - LOOK_AFTER_MS), is_answer)
    if not news:
        return Held((), unread=unread_about(job, passed_over(client, mark, wish.cell)))
    if news[0].job == job:
        return Held(news)
    with contextlib.suppress(ClientUnavailable):  # the log has answered; the view only adds the other elements
        return Held(news, await rows_of(client, wish.cell, job, at_least=news[-1].version))
    return Held(news)


def _answer_to(request: str) -> Callable[[News], bool]:
    done = JobHeld if request == "hold" else JobReleased

    def is_answer(news: News) -> bool:
        return isinstance(news.event, done) or is_no_to(news.event, request, None)

    return is_answer
