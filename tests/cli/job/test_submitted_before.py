"""A job whose id was used before: `fallow submit` says so with `--wait` and without, in the same words and code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.errors.failures import Exit
from fallow.cli.job import submit
from fallow.cli.job.submit import Found, Until, found_of, tell_and_end
from fallow.shared.client.answers import Progress, Stage
from fallow.shared.client.port import ClientUnavailable, Mark, News
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.job_ids import digest_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, WorkerPlace
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.reasons import FailReason, PendingReason, RefuseCode, RejectCode, RequeueReason
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import JobRow
from tests.hypothesis_profile import reaches

GOALS = [None, *Until]
PLAIN, MANY = JobSpec(id="hello", tenant="ada"), JobSpec(id="many", tenant="ada", array=3)
NEW = JobSpec(id="new", tenant="ada")


@dataclass
class Cell:
    """A client of a cell whose view shows these rows, and whose log these pieces of news, one at each look."""

    seen: Sequence[JobRow] = ()
    news_of: Sequence[News] = ()
    cells: tuple[str, ...] = ("main",)
    is_fenced: bool = False
    is_away: bool = False
    rows_were_read: list[str] = field(default_factory=list)

    async def submit(self, jobs: Sequence[JobSpec]) -> Mark:
        return Mark({})

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        for each in self.news_of:
            yield [each]
        while True:
            yield []

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        return ()

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        if self.is_away:
            raise ClientUnavailable("the view is away")
        self.rows_were_read.append(job)
        return Read(next((row for row in self.seen if row.id == job), None), 1, 0, 0, self.is_fenced)

    async def jobs(self, cell: str, *, limit: int, after: str = "", **_: Any) -> Read[tuple[JobRow, ...]]:
        behind = sorted((row for row in self.seen if row.id > after), key=lambda row: row.id)
        return Read(tuple(behind[:limit]), 1, 0, 0, self.is_fenced)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_AFTER_MS", "ANSWER_MS", "LATE_ANSWER_MS"):
        monkeypatch.setattr(submit, name, 5)


async def ends(cell: Cell, goal: Until | None, *jobs: JobSpec, wait_ms: int = 5_000, as_json: bool = False) -> int:
    """The exit code of a submission of these jobs."""
    specs = list(jobs)
    found = await found_of(cell, specs, goal, wait_ms, quiet=as_json)  # type: ignore[arg-type]
    try:
        tell_and_end(specs, goal, wait_ms // 1000, found, as_json=as_json)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def row(status: str, job: str = "ada/hello", deferred: PendingReason | None = None) -> JobRow:
    return JobRow(job, "ada", JobStatus(status), deferred=deferred)


def rows(*statuses: str) -> tuple[JobRow, ...]:
    """The rows of an array's elements, "" for one that the cell has forgotten."""
    return tuple(row(each, f"ada/many.{index}") for index, each in enumerate(statuses) if each)


def enqueued(job: str = "ada/new", sent: JobSpec | None = None) -> News:
    """A job, or an element, that is accepted, as it was sent."""
    spec = JobSpec(id=job, tenant="ada")
    return News("main", e.JobEnqueued(spec=spec, submit_ms=0, digest=digest_of(sent or spec)))


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("status", ["finished", "failed", "cancelled"])
async def test_a_job_that_was_over_before_is_told_so_by_the_same_words_and_code_however_long_is_waited(
    status: str, goal: Until | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ends(Cell([row(status)]), goal, PLAIN) == Exit.BEFORE
    stand = "has failed" if status == "failed" else f"is {status}"
    assert capsys.readouterr().out == f"ada/hello was submitted before; it {stand}. An id is used once.\n"


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize(
    ("seen", "stand"),
    [
        (rows("finished", "cancelled", "failed"), "its elements: 1 finished, 1 failed, 1 cancelled"),
        ((row("failed", "ada/many"), *rows("", "failed")), "its elements: 1 failed"),
        ((row("cancelled", "ada/many"),), "it is cancelled"),
    ],
)
async def test_so_is_an_array_though_the_cell_has_forgotten_elements(
    seen: tuple[JobRow, ...], stand: str, goal: Until | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ends(Cell(seen), goal, MANY) == Exit.BEFORE
    assert capsys.readouterr().out == f"ada/many was submitted before; {stand}. An id is used once.\n"


@pytest.mark.parametrize("goal", [None, Until.ACCEPTED, Until.STARTED])
async def test_a_job_that_lives_may_be_submitted_again_and_followed(
    goal: Until | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ends(Cell([row("running")]), goal, PLAIN) == 0
    assert await ends(Cell(rows("finished", "", "running")), goal, MANY) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ada/hello was submitted before; it is running. An id is used once.",
        "ada/many was submitted before; its elements: 1 running, 1 finished. An id is used once.",
    ]


async def test_what_lives_and_is_not_so_far_in_time_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    waits = Cell([row("queued", deferred=PendingReason.NO_FREE_GPUS)])
    assert await ends(waits, Until.STARTED, PLAIN, wait_ms=50) == Exit.NO
    told = capsys.readouterr()
    assert "ada/hello was submitted before; it is queued. An id is used once.\nStill waiting: ada/hello (" in told.out
    assert await ends(Cell([row("running")]), Until.ENDED, PLAIN, wait_ms=50) == Exit.NO


async def test_of_why_it_waits_the_news_tell_more_than_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    seen = [row("queued", deferred=PendingReason.NO_FREE_GPUS)]
    cell = CellAtOnce(seen, [News("main", e.JobDeferred(job="ada/hello", code=PendingReason.QUOTA_REACHED))])
    await ends(cell, Until.STARTED, PLAIN, wait_ms=50)
    assert f"Still waiting: ada/hello ({PendingReason.QUOTA_REACHED}: " in capsys.readouterr().out


@pytest.mark.parametrize("goal", list(Until))
async def test_a_job_of_ones_own_that_is_cancelled_now_is_a_no(goal: Until) -> None:
    cancelled = News("main", e.JobCancelled(job="ada/new"))

    code = 0 if goal is Until.ACCEPTED else Exit.NO
    assert await ends(Cell(news_of=[enqueued("ada/new", NEW), cancelled]), goal, NEW) == code
    beside = Cell([row("cancelled")], [enqueued("ada/new", NEW), cancelled])
    assert await ends(beside, goal, PLAIN, NEW) == Exit.NO, "what came of a new job tells more"


@pytest.mark.parametrize("goal", GOALS)
async def test_a_job_that_is_turned_away_tells_more_than_one_that_was_over_before(goal: Until | None) -> None:
    no = JobRejected(job="ada/new", tenant="ada", command="submit", code=RejectCode.INVALID_FIELD)
    beside = Cell([row("finished")], [News("main", no)])
    assert await ends(beside, goal, PLAIN, NEW) == Exit.NO


@pytest.mark.parametrize("goal", list(Until))
async def test_where_all_new_jobs_are_well_those_over_before_are_told_by_the_code(goal: Until) -> None:
    beside = Cell([row("finished")], [enqueued("ada/new", NEW), News("main", e.JobFinished(job="ada/new", attempt=1))])
    assert await ends(beside, goal, PLAIN, NEW) == Exit.BEFORE


async def test_an_answer_that_comes_late_says_that_the_job_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the view shows already may be of this very submission."""
    monkeypatch.setattr(submit, "LATE_ANSWER_MS", 60_000)
    cell = Cell([row("failed")])

    async def news(since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        while not cell.rows_were_read:
            yield []
        yield [enqueued("ada/hello", PLAIN)]
        yield [News("main", e.JobFailed(job="ada/hello", reason=FailReason.RETRIES_EXHAUSTED))]
        while True:
            yield []

    cell.news = news  # type: ignore[method-assign]
    assert await ends(cell, Until.ENDED, PLAIN) == Exit.NO


@pytest.mark.parametrize("goal", list(Until))
async def test_a_view_that_is_fenced_or_away_answers_for_nobody(goal: Until) -> None:
    for cell in (Cell([row("finished")], is_fenced=True), Cell(is_away=True)):
        assert await ends(cell, goal, PLAIN, wait_ms=50) == Exit.AWAY


async def test_programs_are_told_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    for goal in GOALS:
        assert await ends(Cell([row("finished")]), goal, PLAIN, as_json=True) == Exit.BEFORE
        assert capsys.readouterr().out == '{"submitted": 1, "jobs": {"ada/hello": "finished"}}\n'


PLACE = WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=1000)
ENDS: dict[str, Callable[[str], e.Effect]] = {
    "finished": lambda job: e.JobFinished(job=job, attempt=1),
    "failed": lambda job: e.JobFailed(job=job, reason=FailReason.RETRIES_EXHAUSTED),
    "cancelled": lambda job: e.JobCancelled(job=job),
}


@dataclass
class CellAtOnce(Cell):
    """A cell whose news all come with the first look: no clock decides how many are seen."""

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        yield list(self.news_of)
        while True:
            yield []


def a_life(job: str, sent: JobSpec, end: str | None) -> list[News]:
    """All that the log tells of a job: it is accepted, it starts, runs, and ends so, or not yet."""
    told: list[e.Effect] = [e.JobStarted(job=job, attempt=1, workers=(PLACE,)), e.JobRunning(job=job, attempt=1)]
    told += [] if end is None else [ENDS[end](job)]
    return [enqueued(job, sent), *(News("main", each) for each in told)]


@given(
    data=st.data(),
    end=st.sampled_from([None, *ENDS]),
    is_same=st.booleans(),
    sees=st.sampled_from(["all", "nothing of the end", "none"]),
    sent=st.sampled_from([PLAIN, MANY]),
    goal=st.sampled_from([None, Until.STARTED]),
)
def test_what_an_earlier_job_of_that_id_does_meanwhile_is_no_answer(
    data: st.DataObject, end: str | None, is_same: bool, sees: str, sent: JobSpec, goal: Until | None
) -> None:
    """Some of its life, of that of one element where it is an array, comes behind the mark. This submission is silent
    where it is the same again, and refused where it is another one.
    """
    first = sent if is_same else replace(sent, priority=1)
    parts = ["ada/hello"] if sent is PLAIN else [f"ada/many.{index}" for index in range(3)]
    lives = [a_life(part, first, end) for part in parts]
    behind = [life[data.draw(st.integers(1 if is_same else 0, len(life))) :] for life in lives]
    merged = data.draw(st.permutations([at for at, life in enumerate(behind) for _ in life]))
    news = [behind[at].pop(0) for at in merged]
    no = e.JobRefused(job=f"ada/{sent.id}", request="submit", code=RefuseCode.ID_USED_BEFORE, tenant="ada")
    if not is_same:
        news.insert(data.draw(st.integers(0, len(news))), News("main", no))
    stand = "running" if end is None or sees == "nothing of the end" else end
    has_end = any(isinstance(each.event, e.JobFinished | e.JobFailed | e.JobCancelled) for each in news)
    is_told = sum(isinstance(each.event, e.JobFinished | e.JobFailed | e.JobCancelled) for each in news) == len(parts)
    cell = CellAtOnce([row(stand, part) for part in parts] if sees != "none" else [], news)
    code = asyncio.run(ends(cell, goal, sent, wait_ms=50, as_json=True))
    reaches("an earlier job ends behind the mark", has_end)
    if not is_same:
        assert code == Exit.NO
    elif is_told or (end is not None and sees == "all"):
        assert code == Exit.BEFORE
    elif sees != "none":
        is_bad = goal is not None and has_end and end != "finished"
        assert code == (Exit.NO if is_bad else 0), "some of it lives, as far as is known"


@dataclass
class CellThatTellsLate(Cell):
    """A cell whose news come only after the view was asked, or soon behind that, or soon behind other news."""

    was_asked: bool = False

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        while not self.was_asked:
            await asyncio.sleep(0.001)
            yield []
        for each in self.news_of:
            for _ in range(20):
                await asyncio.sleep(0.001)
                yield []
            yield [each]
        while True:
            await asyncio.sleep(0.001)
            yield []

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        self.was_asked = True
        return await super().job(cell, job, at_least=at_least)


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("sent", [PLAIN, MANY])
async def test_of_an_earlier_job_that_the_view_does_not_know_the_news_tell_whenever_they_come(
    sent: JobSpec, is_away: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = ["ada/hello"] if sent is PLAIN else [f"ada/many.{index}" for index in range(3)]
    news = [News("main", e.JobRunning(job=part, attempt=1)) for part in parts]
    news += [News("main", ENDS["finished"](part)) for part in parts]
    assert await ends(CellThatTellsLate([], news, is_away=is_away), Until.ENDED, sent) == 0
    told = capsys.readouterr().out
    assert told.count("was submitted before") == 1
    assert all(f"Job {part} has finished" in told for part in parts)


@pytest.mark.parametrize("seen", [(), (row("running"),)], ids=["unknown to the view", "known to the view"])
@pytest.mark.parametrize("goal", [Until.ACCEPTED, Until.STARTED, Until.ENDED])
async def test_a_no_that_comes_behind_news_of_the_earlier_job_is_the_answer(
    goal: Until, seen: tuple[JobRow, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "LATE_ANSWER_MS", 1_000)
    no = e.JobRefused(job="ada/hello", request="submit", code=RefuseCode.ID_USED_BEFORE, tenant="ada")
    told = [
        [News("main", e.JobRunning(job="ada/hello", attempt=1)), News("main", no)],
        [enqueued("ada/hello", replace(PLAIN, priority=1)), News("main", no)],
        [News("main", ENDS["finished"]("ada/hello")), News("main", no)],
    ]
    for news in told:
        assert await ends(CellThatTellsLate(seen, news), goal, PLAIN) == Exit.NO


async def test_of_an_earlier_array_an_element_that_fails_meanwhile_has_not_ended_before() -> None:
    news = [News("main", e.JobRunning(job="ada/many.0", attempt=1)), News("main", ENDS["failed"]("ada/many.0"))]
    news += [News("main", ENDS["finished"](f"ada/many.{index}")) for index in (1, 2)]
    assert await ends(CellThatTellsLate([], news), Until.ENDED, MANY) == Exit.NO


async def test_of_more_earlier_jobs_than_are_looked_up_the_news_tell_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "LOOK_FOR_MAX", 1)
    news = [News("main", ENDS["finished"](job)) for job in ("ada/hello", "ada/new")]
    cell = CellThatTellsLate([row("running"), row("running", "ada/new")], news)
    assert await ends(cell, Until.ENDED, PLAIN, NEW) == Exit.BEFORE


ROUND: tuple[tuple[Callable[[str], e.Effect], str, Stage], ...] = (
    (lambda job: e.JobStarted(job=job, attempt=1, workers=(PLACE,)), "starting", Stage.STARTED),
    (lambda job: e.JobRunning(job=job, attempt=1), "running", Stage.RUNNING),
    (
        lambda job: e.JobRequeued(job=job, reason=RequeueReason.PREEMPTED, not_before_ms=0, failures=0),
        "queued",
        Stage.WAITING,
    ),
)
"""What happens to a job time and again, and how it stands then, in the view and in the news."""


@given(data=st.data(), sent=st.sampled_from([PLAIN, MANY]))
def test_an_earlier_job_is_as_far_as_the_newest_that_rows_and_news_tell(data: st.DataObject, sent: JobSpec) -> None:
    """The mark lies anywhere in the life of each job or element. The view shows how it stood at one time, the news are
    read to another one before what was seen is noted, and to the end after it.
    """
    parts = ["ada/hello"] if sent is PLAIN else [f"ada/many.{index}" for index in range(3)]
    found, seen, later = Found([f"ada/{sent.id}"], Progress.of_specs([sent])), list[JobRow](), list[News]()
    told, newest, are_ahead = dict[str, Stage](), dict[str, Stage](), True
    for part in parts:
        lived = [(make(part), status, stage) for make, status, stage in ROUND * 2][: data.draw(st.integers(0, 6))]
        if (end := data.draw(st.sampled_from([None, *ENDS]))) is not None:
            lived.append((ENDS[end](part), end, Stage(end)))
        stands = [("queued", Stage.WAITING), *((status, stage) for _, status, stage in lived)]
        mark = data.draw(st.integers(0, len(lived)))
        noted = data.draw(st.integers(mark, len(lived)))
        shown = data.draw(st.integers(0 if noted > mark else mark, len(lived)))
        news = [News("main", effect) for effect, _, _ in lived]
        for each in news[mark:noted]:
            found.progress.take(each)
        later += news[noted:]
        told[part], newest[part], are_ahead = stands[noted][1], stands[-1][1], are_ahead and shown <= noted
        if shown or noted == mark or data.draw(st.booleans()):
            seen.append(row(stands[shown][0], part))
    found.note({found.names[0]: tuple(seen)} if seen else {})
    reaches(
        "a row that is older than the news",
        are_ahead and told != {each.id: submit.STAGES[each.status] for each in seen},
    )
    if are_ahead:
        assert found.progress.stages == told
        assert {each.id: submit.STAGES[each.status] for each in found.earlier[found.names[0]]} == told
    for each in later:
        found.progress.take(each)
    assert found.progress.stages == newest


@pytest.mark.parametrize("goal", [None, Until.ENDED])
async def test_an_array_of_which_one_element_is_not_known_to_be_over_is_not_said_to_be(
    goal: Until | None, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = [News("main", e.JobFinished(job=f"ada/many.{index}", attempt=1)) for index in range(2)]
    code = await ends(CellAtOnce(news_of=ended, is_away=True), goal, MANY, wait_ms=50, as_json=True)
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    if goal is None:
        assert (code, jobs) == (0, {"ada/many": "unanswered"})
    else:
        assert (code, jobs["ada/many.2"]) == (Exit.AWAY, "unanswered")


async def test_a_job_that_is_to_stop_is_told_so_though_the_news_told_of_its_start_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    news = [News("main", e.JobStarted(job="ada/hello", attempt=2, workers=(PLACE,)))]
    await ends(Cell([row("stopping")], news), None, PLAIN, wait_ms=60)
    assert "it is stopping" in capsys.readouterr().out
