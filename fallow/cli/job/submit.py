"""`fallow submit`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fallow.cli.access import Access, access_of, run
from fallow.cli.arguments.ids import a_tenant
from fallow.cli.errors.failures import Exit, end_with, refuse, say
from fallow.cli.errors.unanswered import Passes, unanswered, unread_about
from fallow.cli.errors.wrong_use import WrongValue
from fallow.cli.job.files.file import read_jobs, read_text
from fallow.cli.job.files.units import odd_units
from fallow.cli.job.story.standing import by_elements, read_of, standing, statuses
from fallow.cli.log.sentences import gpus, node_at, of_job, rejection, sentence, stands
from fallow.cli.log.why import DEFERRED
from fallow.cli.output.counts import counted
from fallow.cli.output.output import AsJson, print_json, print_sentence
from fallow.shared.client.answers import BAD, OVER, TURNED_AWAY, Progress, Stage
from fallow.shared.client.port import CellClient, ClientUnavailable, Mark, News
from fallow.shared.cluster.model.job import FINAL, WAITING, JobStatus
from fallow.shared.events.effects import JobRefused, NodeChanged
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.values import ARRAY_MAX, AfterWhen, Dependency, JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.validation.unknown_fields import read_valid
from fallow.shared.near import first_named
from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.view.rows import JobRow

app = typer.Typer()


class Until(StrEnum):
    """How far jobs are followed."""

    ACCEPTED = "accepted"
    STARTED = "started"
    ENDED = "ended"


STAGES = {
    JobStatus.QUEUED: Stage.WAITING,
    JobStatus.HELD: Stage.WAITING,
    JobStatus.AWAITING: Stage.WAITING,
    JobStatus.STARTING: Stage.STARTED,
    JobStatus.RUNNING: Stage.RUNNING,
    JobStatus.RESIZING: Stage.RUNNING,
    JobStatus.STOPPING: Stage.RUNNING,
    JobStatus.FINISHED: Stage.FINISHED,
    JobStatus.FAILED: Stage.FAILED,
    JobStatus.CANCELLED: Stage.CANCELLED,
}
STATUSES = {
    Stage.WAITING: JobStatus.QUEUED,
    Stage.STARTED: JobStatus.STARTING,
    Stage.RUNNING: JobStatus.RUNNING,
    **{STAGES[status]: status for status in FINAL},
}
"""How a job stands of which the news told, as the view would show it."""

ANSWER_MS = 2_000
"""So long `submit` looks for an answer where it is not told to wait. A cell that works answers within milliseconds."""

SUBMITTED = "submitted"
NO = (JobRejected, JobRefused)
LOOK_AFTER_MS = 2_000
LOOK_FOR_MAX = 1_000
LATE_ANSWER_MS = 500
"""So long an answer is looked for again where the view knows a job: what the view shows is in the log before."""

Earlier = dict[str, tuple[JobRow, ...]]
"""Jobs that were submitted before, with their rows, or those of an array's elements."""

GOALS = {Until.ACCEPTED: Stage.WAITING, Until.STARTED: Stage.STARTED, Until.ENDED: Stage.FINISHED}


@dataclass(slots=True)
class Found:
    """What became of jobs, and arrays, of these names after they were sent: how far they are, which of them were
    submitted before, and why they wait as it was told meanwhile, "" where it was not.
    """

    names: list[str]
    progress: Progress
    earlier: Earlier = field(default_factory=Earlier)
    over_before: list[str] = field(default_factory=list)
    """Those that were submitted before and were over then: nothing runs for this submission."""
    told: str = ""
    passed_over: tuple[str, ...] = ()
    """Cells of which decisions were passed over since this submission: no key proves them."""
    cells: dict[str, str] = field(default_factory=dict)
    """The cell of each job, or element, that names one."""

    @classmethod
    def of(cls, specs: Sequence[JobSpec]) -> Found:
        """Nothing is known yet of what became of these submissions."""
        found = cls([full_id(spec.tenant, spec.id) for spec in specs], Progress.of_specs(specs))
        for job, spec in zip(found.names, specs, strict=True):
            if spec.cell is not None:
                found.cells.update(dict.fromkeys((job, *found.parts(job)), spec.cell))
        return found

    def passed_over_of(self, job: str) -> list[str]:
        """The cells that may have answered about the job in what was passed over: any, where it names none."""
        return [cell for cell in self.passed_over if self.cells.get(job, cell) == cell]

    def parts(self, job: str) -> tuple[str, ...]:
        """The job, or the elements of the array."""
        return self.progress.arrays.get(job, (job,))

    def unanswered(self) -> list[str]:
        """Those whose submission has no answer. Of an earlier array of that id some elements may be in the news."""
        stages = self.progress.stages
        return [job for job in self.names if any(stages[each] is Stage.UNANSWERED for each in self.parts(job))]

    def silent(self) -> list[str]:
        """Those of them whose answer was not passed over either."""
        return [job for job in self.unanswered() if not self.passed_over_of(job)]

    def note(self, seen: Earlier) -> None:
        """Those of which these rows were seen, or whose news told of them, and to which no answer came since, were
        submitted before. They are as far as the rows and the news say; an element of which the rows that were seen do
        not tell is over, since the view has forgotten it. Where answers may have been passed over, silence shows
        nothing: what is seen may be of this very submission.
        """
        for job in self.silent():
            parts, rows = self.parts(job), seen.get(job, ())
            forgotten = _forgotten(rows) if rows else Stage.UNANSWERED
            rows = self._with_news(job, rows)
            if rows:
                is_new, self.earlier[job] = job not in self.earlier, rows
                self._take(parts, rows, forgotten)
                if is_new and all(self.progress.stages[part] in OVER for part in parts):
                    self.over_before.append(job)

    def _with_news(self, job: str, rows: tuple[JobRow, ...]) -> tuple[JobRow, ...]:
        """These rows, each as far as the news told, and those of which only the news told: the view comes after the
        log, was read earlier, and may be away.
        """
        parts, told, seen = self.parts(job), self.progress.earlier, {row.id for row in rows}
        if job in seen and job not in parts:
            return rows  # the array is over
        tenant = self.progress.tenants[job]
        unseen = (JobRow(part, tenant, STATUSES[told[part]]) for part in parts if part in told and part not in seen)
        return (*(_as_told(row, told.get(row.id)) for row in rows), *unseen)

    def _take(self, parts: tuple[str, ...], rows: tuple[JobRow, ...], forgotten: Stage) -> None:
        stages, of = self.progress.stages, {row.id: row for row in rows}
        for part in parts:
            if stages[part] is Stage.UNANSWERED:
                row = of.get(part)
                stages[part] = STAGES[row.status] if row is not None else forgotten
                if row is not None and row.deferred is not None and row.status in WAITING:
                    self.progress.waits.setdefault(part, row.deferred)


def _as_told(row: JobRow, stage: Stage | None) -> JobRow:
    """The row, as far as the news told. An end stays one, and of the same stage the row says more; of a job that is to
    stop no news tells but by its end.
    """
    if stage is None or row.status in FINAL or STAGES[row.status] is stage:
        return row
    is_stopping = row.status is JobStatus.STOPPING and stage in (Stage.STARTED, Stage.RUNNING)
    return row if is_stopping else replace(row, status=STATUSES[stage])


def _forgotten(rows: tuple[JobRow, ...]) -> Stage:
    """How an element ended of which these rows of its array do not tell."""
    whole = standing(rows)
    return STAGES[whole if whole in FINAL else JobStatus.FINISHED]


def elements(text: str | int) -> int:
    """How many elements an array has. Raises WrongValue."""
    word = str(text)
    if not (word.isascii() and word.isdecimal() and len(word) <= len(str(ARRAY_MAX)) and 1 <= int(word) <= ARRAY_MAX):
        raise WrongValue(word, f"must be a number of elements from 1 to {ARRAY_MAX}, such as 20 for ID.0 to ID.19")
    return int(word)


@app.command()
def submit(  # noqa: PLR0913, PLR0917 - the options of a command
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="YAML or JSON, one job or many; - is standard input.")],
    tenant: Annotated[
        str | None,
        typer.Option(envvar="FALLOW_TENANT", callback=a_tenant, help="The tenant of jobs that name none."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait, and tell what becomes of each job.")] = False,
    array: Annotated[
        int | None,
        typer.Option(parser=elements, metavar="N", help="So many elements of each job, ID.0, ID.1, ...: 20, no range."),
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(help="Start only when this job has ended well; ID:any when it has ended at all.")
    ] = None,
    until: Annotated[Until | None, typer.Option(help="How far to wait; --wait alone waits for the start.")] = None,
    timeout_s: Annotated[int, typer.Option("--timeout", min=1, help="How many seconds to wait at most.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Submit jobs. Each is checked here before any is sent; the same job sent again does no harm.

    Exit 1 if the cell turns one away within two seconds; with --wait, if one is rejected, refused, failed or
    cancelled, or not so far in time, and 3 if there is no answer. With --wait and without it: exit 4 if one was
    submitted before and was over, however it ended, so that nothing runs.
    """
    text, name = read_text(file)
    source = context.get_parameter_source("tenant")
    is_typed = tenant is not None and source is not None and source.name == "COMMANDLINE"
    waits = [_dependency(each) for each in after or []]
    jobs = read_jobs(text, name, tenant, is_typed=is_typed, array=array, after=waits)
    for line in odd_units(jobs):
        say(f"fallow: {line}")
    goal = until or (Until.STARTED if wait else None)
    found = run(_submit(access_of(context), jobs, goal, timeout_s * 1000, quiet=as_json))
    tell_and_end(jobs, goal, timeout_s, found, as_json=as_json)


def tell_and_end(jobs: list[JobSpec], goal: Until | None, timeout_s: int, found: Found, *, as_json: bool) -> None:
    """Tell how far the jobs are, and end the command with the code that says so where that is not 0."""
    progress, earlier = found.progress, found.earlier
    if as_json:
        stages = {job: stage.value for job, stage in progress.stages.items()}
        said = {"submitted": len(jobs), "jobs": stages if goal else _sent(jobs, progress, earlier)}
        reasons = {job: reason_of(event) for job, event in progress.reasons.items()}
        waits = {"waits": dict(progress.waits)} if goal and progress.waits else {}
        print_json({**said, **({"reasons": reasons} if reasons else {}), **waits})
    elif goal is None:
        _tell_sent(jobs, progress, earlier)
    if goal is not None:
        _end(found, goal, timeout_s)
    if progress.turned_away:
        raise typer.Exit(Exit.NO)
    _end_unread(found, found.unanswered())
    if found.over_before:
        raise typer.Exit(Exit.BEFORE)


def reason_of(event: JobRefused | JobRejected) -> dict[str, Any]:
    """Why a job was turned away, for programs."""
    if isinstance(event, JobRefused):
        return {"code": event.code, "field": "", "value": "", "rule": event.text}
    return {"code": event.code, "field": event.field, "value": event.value, "rule": event.rule}


def _tell_sent(jobs: list[JobSpec], progress: Progress, earlier: Earlier) -> None:
    for job, rows in earlier.items():
        print_sentence(before(job, rows))
    sent = {job: None for job, said in _sent(jobs, progress, earlier).items() if said == SUBMITTED}
    if sent:
        which = [job for job in jobs if full_id(job.tenant, job.id) in sent]
        print_sentence(f"{len(sent)} submitted: {first_named([*sent], 1)} ({size_of(which)})")


def before(job: str, rows: Sequence[JobRow]) -> str:
    """The message for a job, or an array, that was submitted before: nothing new came of it."""
    stand = f"it {stands(rows[0].status)}" if rows[0].id == job else f"its elements: {statuses(rows)}"
    return f"{job} was submitted before; {stand}. An id is used once."


def size_of(jobs: list[JobSpec]) -> str:
    """How much jobs want: so a number that was meant otherwise is seen."""
    if len(jobs) > 1:
        return f"{gpus(sum(job.gpus_milli * (job.array or 1) for job in jobs))} in all"
    each = of_job(jobs[0])
    return each if jobs[0].array is None else f"{counted(jobs[0].array, 'element')}, each {each}"


def _sent(jobs: list[JobSpec], progress: Progress, earlier: Earlier) -> dict[str, str]:
    """What is known of each job, or array, so soon after it was sent. `earlier`: those that were submitted before."""
    names = [full_id(job.tenant, job.id) for job in jobs]
    said = {job: progress.stages[_followed(progress, job)] for job in names}
    said |= {job: _stage_of(progress, job, rows) for job, rows in earlier.items()}
    shown = {job: stage in TURNED_AWAY or job in earlier for job, stage in said.items()}
    return {job: stage.value if shown[job] else SUBMITTED for job, stage in said.items()}


def _stage_of(progress: Progress, job: str, rows: Sequence[JobRow]) -> Stage:
    """How far one is that was submitted before: an array is over only where that is known of each element."""
    stage = STAGES[standing(rows)]
    is_open = any(progress.stages[part] is Stage.UNANSWERED for part in progress.arrays.get(job, (job,)))
    return Stage.UNANSWERED if stage in OVER and is_open else stage


def _followed(progress: Progress, job: str) -> str:
    """The job, or the first element of an array."""
    return progress.arrays.get(job, (job,))[0]


def _dependency(text: str) -> Dependency:
    name, _, when = text.partition(":")
    try:
        return read_valid(Dependency, json.dumps({"job": name, "when": when or AfterWhen.OK}))
    except ValidationError:
        refuse("--after", text, f"must be the id of a job, or ID:WHEN with {' or '.join(AfterWhen)}")


async def _submit(access: Access, jobs: list[JobSpec], goal: Until | None, wait_ms: int, *, quiet: bool) -> Found:
    async with access.client() as client:
        return await found_of(client, jobs, goal, wait_ms, quiet=quiet)


async def found_of(client: CellClient, jobs: list[JobSpec], goal: Until | None, wait_ms: int, *, quiet: bool) -> Found:
    """Submit the jobs, and follow them as far as is wished. Raises ClientUnavailable, but where they are sent and not
    waited for: what became of them others can tell.
    """
    found = Found.of(jobs)
    mark = await client.submit(jobs)
    if goal is not None:
        await follow(client, mark, found, GOALS[goal], wait_ms, quiet=quiet)
        return found
    rows = Earlier()
    with contextlib.suppress(ClientUnavailable):
        await _turned_away(client, mark, found, ANSWER_MS, quiet=quiet)
        rows = await _rows_of_silent(client, found)
        if rows:
            await _turned_away(client, mark, found, LATE_ANSWER_MS, quiet=quiet)
    found.note(rows)
    return found


async def _turned_away(client: CellClient, mark: Mark, found: Found, wait_ms: int, *, quiet: bool) -> None:
    """Take in answers for so long, and tell of the jobs that are turned away."""
    began_ms, progress = monotonic_ms(), found.progress
    async with aclosing(client.news(mark)) as batches:
        async for some in batches:
            for news in some:
                if progress.take(news) and not quiet and isinstance(news.event, NO):
                    print_sentence(words(news))
            found.passed_over = client.passed_over(mark)
            if progress.have(Stage.WAITING) or monotonic_ms() - began_ms > wait_ms:
                return


async def _rows_of_silent(client: CellClient, found: Found) -> Earlier:
    """The rows of those jobs that the view knows although this submission got no answer: with the same content as an
    earlier one it gets none. The view of a fenced cell knows jobs that the log may not hold: it answers for no job.
    """
    rows: dict[str, tuple[JobRow, ...]] = {}
    for job in found.silent()[:LOOK_FOR_MAX]:
        for cell in client.cells:
            read = await read_of(client, cell, job)
            if read.value and not read.is_fenced:
                rows[job] = await by_elements(client, cell, job, read.value)
    return rows


class LateNews:
    """News of jobs that were there before, which come when the others are told already. A no to this submission may
    come right behind them: they are told a moment later.
    """

    def __init__(self, found: Found) -> None:
        self._found, self._told, self._since_ms = found, 0, 0

    def are_due(self, now_ms: int) -> bool:
        """Whether some are to be told now."""
        count = len(self._found.progress.earlier)
        if count == self._told:
            self._since_ms = now_ms
        if now_ms - self._since_ms <= LATE_ANSWER_MS:
            return False
        self._told, self._since_ms = count, now_ms
        return True


async def follow(client: CellClient, mark: Mark, found: Found, goal: Stage, wait_ms: int, *, quiet: bool) -> None:
    """Tell each step of the jobs until all have reached the goal, or the time is over; meanwhile, once, which of them
    were submitted before, and why they wait. Of those that the view does not know the news tell it when they come.
    """
    began_ms, rows, has_looked, is_told = monotonic_ms(), Earlier(), False, False
    late = LateNews(found)
    async with aclosing(client.news(mark)) as batches:
        async for some in batches:
            for news in some:
                if found.progress.take(news) and not quiet:
                    print_sentence(words(news))
            found.passed_over = client.passed_over(mark)
            past_ms = monotonic_ms() - began_ms
            if not has_looked and past_ms > LOOK_AFTER_MS:
                has_looked, rows = True, await _rows_if_it_can(client, found)
            if has_looked and not is_told and (not rows or past_ms > LOOK_AFTER_MS + LATE_ANSWER_MS):
                is_told = True
                _tell_earlier(found, rows, quiet=quiet)
                _tell_why_they_wait(found, quiet=quiet)
            if is_told and late.are_due(past_ms):
                _tell_earlier(found, Earlier(), quiet=quiet)
            if found.progress.have(goal) or past_ms > wait_ms:
                break
    if not is_told and (rows or found.progress.earlier):
        _tell_earlier(found, rows, quiet=quiet)
        _tell_why_they_wait(found, quiet=quiet)
    elif found.progress.earlier:
        _tell_earlier(found, Earlier(), quiet=quiet)


async def _rows_if_it_can(client: CellClient, found: Found) -> Earlier:
    """The rows of earlier jobs where the view is there; else that it is not is told, and the news alone tell of the
    jobs.
    """
    try:
        return await _rows_of_silent(client, found)
    except ClientUnavailable as error:
        say(f"fallow: {error}")
        return {}


def _tell_earlier(found: Found, rows: Earlier, *, quiet: bool) -> None:
    """Note those that were submitted before, and tell of each that was not known to be."""
    known = frozenset(found.earlier)
    found.note(rows)
    if not quiet:
        for job, its in found.earlier.items():
            if job not in known:
                print_sentence(before(job, its))


def _tell_why_they_wait(found: Found, *, quiet: bool) -> None:
    if quiet:
        return
    known = [job for job in found.progress.at(Stage.WAITING) if not found.passed_over_of(job)]
    found.told = why_it_waits(found.progress, known)
    if found.told:
        print_sentence(f"Still waiting: {found.told}.")


def words(news: News) -> str:
    """One piece of news as a sentence."""
    match news.event:
        case JobRejected() as no:
            return rejection(no)
        case NodeChanged() as changed if news.at_ms is not None:
            return node_at(changed, news.at_ms)
        case effect:
            return sentence(effect, news.at_ms)


def why_it_waits(progress: Progress, jobs: list[str]) -> str:
    """Why the first of these jobs waits of which that is known, for people; "" where it is known of none."""
    first = next((job for job in jobs if job in progress.waits), None)
    if first is None:
        return ""
    code = progress.waits[first]
    more = f", and {counted(len(jobs) - 1, 'more job')}" if len(jobs) > 1 else ""
    return f"{first} ({code}: {DEFERRED[code]}){more}; see `fallow job {first}`"


def _end(found: Found, goal: Until, timeout_s: int) -> None:
    """End the command by how far the jobs are, where they are not as far as they should. Why they wait is not repeated
    where a line above has told it. What was over before ended in no way by this submission.
    """
    progress = found.progress
    missing = progress.at(Stage.UNANSWERED)
    late = [job for job, stage in progress.stages.items() if not progress.is_at(stage, GOALS[goal])]
    _end_unread(found, missing or late)
    if missing:
        end_with(Exit.AWAY, f"fallow: {unanswered(first_named([*missing], 1), Passes.ADMISSION, timeout_s)}")
    if not progress.have(GOALS[goal]):
        why = why_it_waits(progress, late)
        said = first_named([*late], 1) if why in ("", found.told) else why
        end_with(Exit.NO, f"fallow: not {goal.value} within {timeout_s} s: {said}")
    earlier = {part for job in found.over_before for part in progress.arrays.get(job, (job,))}
    if any(stage in BAD for job, stage in progress.stages.items() if job not in earlier):
        raise typer.Exit(Exit.NO)


def _end_unread(found: Found, jobs: Sequence[str]) -> None:
    """End the command where these jobs may be farther than can be read."""
    cells = {job: over for job in jobs if (over := found.passed_over_of(job))}
    if cells:
        every = dict.fromkeys(cell for over in cells.values() for cell in over)
        end_with(Exit.AWAY, f"fallow: {unread_about(first_named([*cells], 1), every)}")
