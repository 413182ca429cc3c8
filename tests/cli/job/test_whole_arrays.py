"""Commands about an array look at all of its elements: no element, and no single answer, speaks for the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fallow.cli.errors.failures import Exit
from fallow.cli.job import cancel, hold, job, submit
from fallow.cli.job.story.standing import FIRST_ROWS, are_free, are_held, rows_of, standing
from fallow.shared.client.port import Mark, News
from fallow.shared.cluster.model.job import FINAL, WAITING, JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.base import Command
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.jobs import JobRejected
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.reasons import RefuseCode, RejectCode
from fallow.shared.view.reader import Read
from fallow.shared.view.rows import JobRow

HOLD, RELEASE = HoldJob(cell="main", job="many"), ReleaseJob(cell="main", job="many")


def rows(*statuses: str, job: str = "many") -> tuple[JobRow, ...]:
    """The rows of an array's elements, "" for one that the cell has forgotten."""
    return tuple(JobRow(f"{job}.{index}", "ada", JobStatus(each)) for index, each in enumerate(statuses) if each)


@dataclass
class Cell:
    """A client of a cell in which these rows are seen and these answers come."""

    seen: Sequence[JobRow]
    answers: Sequence[News] = ()
    cells: tuple[str, ...] = ("main",)
    read: list[int] = field(default_factory=list)
    """How many rows each read of a page of jobs was of."""

    async def submit(self, jobs: Sequence[JobSpec]) -> Mark:
        return Mark({})

    async def operate(self, operation: Command) -> Mark:
        return Mark({})

    async def cancel(self, job: str, tenant: str, *, cell: str | None = None, reason: str = "") -> Mark:
        return Mark({})

    async def news(self, since: Mark, *, wait_ms: int = 200) -> AsyncGenerator[list[News], None]:
        yield list(self.answers)
        while True:
            yield []

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        return ()

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        return Read(next((row for row in self.seen if row.id == job), None), at_least or 1, 0, 0)

    async def jobs(
        self, cell: str, *, limit: int, after: str = "", at_least: int | None = None, **_: Any
    ) -> Read[tuple[JobRow, ...]]:
        behind = sorted((row for row in self.seen if row.id > after), key=lambda row: row.id)
        self.read.append(len(behind[:limit]))
        return Read(tuple(behind[:limit]), at_least or 1, 0, 0)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "LOOK_AFTER_MS", 5)
    monkeypatch.setattr(cancel, "LOOK_AFTER_MS", 5)
    for name in ("ANSWER_MS", "LATE_ANSWER_MS"):
        monkeypatch.setattr(submit, name, 5)


@pytest.mark.parametrize(
    ("wish", "seen", "told"),
    [
        (HOLD, rows("running", "held", "held"), "Array many is held already: 2 held, 1 running."),
        (HOLD, rows("", "held"), "Array many is held already: 1 held."),
        (RELEASE, rows("running", "queued", "awaiting"), "Array many is not held: 1 queued, 1 awaiting, 1 running."),
        (RELEASE, rows("finished", "awaiting"), "Array many is not held: 1 awaiting, 1 finished."),
    ],
)
async def test_an_array_that_is_as_wished_is_told_so_whatever_its_first_element_does(
    wish: HoldJob | ReleaseJob, seen: tuple[JobRow, ...], told: str
) -> None:
    outcome = await hold.outcome_of(Cell(seen), wish, "many", 60_000)  # type: ignore[arg-type]
    assert outcome.is_of_array("many")
    assert hold.of_array("many", outcome, is_hold=wish is HOLD) == told


@pytest.mark.parametrize("status", WAITING)
async def test_a_release_of_a_job_that_waits_unheld_needs_no_answer(status: JobStatus) -> None:
    row = JobRow("many", "ada", status)
    outcome = await hold.outcome_of(Cell([row]), RELEASE, "many", 20)  # type: ignore[arg-type]
    assert outcome.rows == ((row,) if status is not JobStatus.HELD else ())


@pytest.mark.parametrize("status", [status for status in JobStatus if status not in WAITING])
def test_where_nothing_waits_the_cell_says_no_itself(status: JobStatus) -> None:
    seen = rows(status, status)
    assert not are_held(seen)
    assert not are_free(seen)


@pytest.mark.parametrize(
    ("wish", "changed", "seen", "told"),
    [
        (
            HOLD,
            (1, 2),
            rows("running", "held", "held", "held", "finished"),
            "Array many: 2 elements are held back, 1 was held before; not held: 1 running, 1 finished.",
        ),
        (HOLD, (0,), rows("held"), "Array many: 1 element is held back."),
        (HOLD, (1,), rows("running", "held"), "Array many: 1 element is held back; not held: 1 running."),
        (
            RELEASE,
            (0, 1),
            rows("starting", "queued", "queued", "finished"),
            "Array many: 2 elements are no longer held; not held before: 1 queued, 1 finished.",
        ),
        (RELEASE, (0,), rows("queued"), "Array many: 1 element is no longer held."),
    ],
)
async def test_the_answer_about_an_array_counts_all_of_its_elements(
    wish: HoldJob | ReleaseJob, changed: tuple[int, ...], seen: tuple[JobRow, ...], told: str
) -> None:
    done = e.JobHeld if wish is HOLD else e.JobReleased
    answers = [News("main", done(job=f"many.{index}"), 7) for index in changed]
    outcome = await hold.outcome_of(Cell(seen, answers), wish, "many", 60_000)  # type: ignore[arg-type]
    assert hold.of_array("many", outcome, is_hold=wish is HOLD) == told


async def test_a_no_about_the_whole_array_is_the_one_answer() -> None:
    no = News("main", e.JobRefused(job="many", request="hold", code=RefuseCode.WRONG_STATE, text="none waits"))
    outcome = await hold.outcome_of(Cell(rows("running"), [no]), HOLD, "many", 60_000)  # type: ignore[arg-type]
    assert outcome == hold.Held([no])


@pytest.mark.parametrize(
    "no",
    [
        e.JobRefused(job="ada/hello.3", request="cancel", code=RefuseCode.UNKNOWN_JOB, tenant="ada"),
        JobRejected(job="ada/hello.3", tenant="ada", command="cancel", code=RejectCode.INVALID_FIELD),
    ],
)
async def test_a_no_about_an_element_that_is_not_there_is_no_answer_about_a_job(no: e.Effect | JobRejected) -> None:
    row = JobRow("ada/hello", "ada", JobStatus.RUNNING)
    found = await cancel.outcome_of(Cell([row], [News("main", no)]), "ada/hello", "ada", "main", "", 20)  # type: ignore[arg-type]
    assert found == []


async def test_an_array_whose_first_element_is_forgotten_is_found_by_the_others() -> None:
    seen = rows("", "running", "queued")
    found = await cancel.whereabouts(Cell(seen), "many", None)  # type: ignore[arg-type]
    assert (found.cell, found.row) == ("main", seen[0])


@pytest.mark.parametrize(
    ("seen", "is_done"),
    [
        (rows("finished", "stopping", "cancelled"), True),
        ((JobRow("many", "ada", JobStatus.STOPPING),), True),
        (rows("stopping", "running"), False),
    ],
)
async def test_a_second_cancel_is_told_that_the_first_is_under_way(seen: tuple[JobRow, ...], *, is_done: bool) -> None:
    found = await cancel.outcome_of(Cell(seen), "many", None, None, "", 20)  # type: ignore[arg-type]
    assert found == (seen if is_done else [])


def over(own: str, *statuses: str) -> tuple[JobRow, ...]:
    """The rows of an array that is over: its own, and those of the elements that the cell remembers."""
    return JobRow("many", "ada", JobStatus(own)), *rows(*statuses)


@pytest.mark.parametrize(
    ("seen", "told", "code"),
    [
        (over("cancelled", "finished", "finished", "cancelled"), "2 finished, 1 cancelled", Exit.OK),
        (over("failed", "failed", "cancelled"), "1 failed, 1 cancelled", Exit.OK),
        (over("failed", "failed", "finished"), "1 finished, 1 failed", Exit.NO),
        (over("finished", "finished", "finished"), "2 finished", Exit.NO),
    ],
)
async def test_the_cancel_of_an_array_that_is_over_counts_its_elements(
    seen: tuple[JobRow, ...], told: str, code: Exit
) -> None:
    found = await cancel.outcome_of(Cell(seen), "many", None, None, "", 20)  # type: ignore[arg-type]
    assert found is not None
    outcome = cancel.told_of("many", found, 20)
    assert (outcome.answer, outcome.code) == (f"Array many was over before: {told}.", code)


async def test_an_array_whose_elements_are_forgotten_is_told_by_its_own_row() -> None:
    found = await cancel.outcome_of(Cell(over("cancelled")), "many", None, None, "", 20)  # type: ignore[arg-type]
    assert found == over("cancelled")[0]


@pytest.mark.parametrize("seen", [over("cancelled"), over("cancelled", "cancelled"), over("finished")])
@pytest.mark.parametrize("cell", [None, "main"])
async def test_what_is_over_is_not_cancelled_for_another_tenant(seen: tuple[JobRow, ...], cell: str | None) -> None:
    no = e.JobRefused(job="many", request="cancel", code=RefuseCode.NOT_THE_TENANTS_JOB, tenant="eve", text="")
    here = Cell(seen, [News("main", no)])
    found = await cancel.outcome_of(here, "many", "eve", cell, "", 20)  # type: ignore[arg-type]
    assert found is not None
    outcome = cancel.told_of("many", found, 20)
    assert (outcome.code, "not_the_tenants_job" in outcome.answer) == (Exit.NO, True)


async def earlier_of(cell: Cell, job: JobSpec) -> submit.Earlier:
    """The rows by which a submission of this job is told that there was one before."""
    return (await submit.found_of(cell, [job], None, 20, quiet=True)).earlier  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        (over("cancelled", "finished", "cancelled"), JobStatus.CANCELLED),
        (over("failed", "finished", "cancelled", "failed"), JobStatus.FAILED),
        (over("finished", "finished", "finished"), JobStatus.FINISHED),
    ],
)
async def test_an_array_that_is_over_is_told_by_its_elements_when_it_is_submitted_again(
    seen: tuple[JobRow, ...], stage: JobStatus
) -> None:
    seen = tuple(replace(row, id=f"ada/{row.id}") for row in seen)
    earlier = await earlier_of(Cell(seen), JobSpec(id="many", tenant="ada", array=2))
    assert earlier == {"ada/many": seen[1:]}
    assert standing(earlier["ada/many"]) is stage


def test_an_array_that_is_over_is_told_to_programs_by_counts_alone() -> None:
    own, *elements = over("cancelled", "finished", "cancelled")
    shown = job.as_object("many", job.Told("main", row=replace(own, over_ms=7), elements=tuple(elements)))
    assert (shown["row"], shown["array"]["over_ms"]) == (None, 7)
    assert shown["array"]["by_status"] == {"finished": 1, "cancelled": 1}


async def answers_to(cell: Cell, *jobs: str) -> list[str]:
    return [each.answer async for each in cancel.told_of_each(cell, jobs, None, None, "", 1)]  # type: ignore[arg-type]


async def test_for_many_unknown_ids_the_view_is_asked_once_which_jobs_there_are() -> None:
    many = [JobRow(f"job-{number:05}", "ada", JobStatus.RUNNING) for number in range(3_000)]
    cell = Cell(many)
    assert await answers_to(cell, *(f"gob-{number:05}" for number in range(12))) == [
        f"no cell knows a job gob-{number:05} (did you mean job-{number:05}?)" for number in range(12)
    ]
    assert sorted(cell.read)[-2:] == [FIRST_ROWS, len(many)]
    assert len(cell.read) == 12 + 1


@pytest.mark.parametrize("between", ["many.-", "many.0a"])
async def test_an_array_is_found_behind_many_jobs_that_are_named_like_its_elements(between: str) -> None:
    others = [JobRow(f"{between}{number:04}", "ada", JobStatus.RUNNING) for number in range(3 * FIRST_ROWS)]
    seen = rows("running", "queued")
    cell = Cell([*others, seen[1]])
    assert await rows_of(cell, "main", "many") == (seen[1],)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [FIRST_ROWS - 1, FIRST_ROWS, FIRST_ROWS + 1, 10 * FIRST_ROWS])
async def test_all_elements_of_an_array_are_found_however_many_there_are(count: int) -> None:
    seen = rows(*["running"] * count)
    assert await rows_of(Cell(seen), "main", "many") == seen  # type: ignore[arg-type]


@pytest.mark.parametrize("others", ["running", "queued", "finished"])
async def test_an_array_submitted_again_is_over_only_with_its_last_element(others: str) -> None:
    seen = rows("finished", others, others, job="ada/many")
    earlier = await earlier_of(Cell(seen), JobSpec(id="many", tenant="ada", array=3))
    assert earlier == {"ada/many": seen}
    assert (standing(earlier["ada/many"]) in FINAL) == (others == "finished")


@pytest.mark.parametrize("statuses", [("queued", "held"), ("held", "queued"), ("awaiting", "running", "held")])
def test_one_element_that_is_held_makes_a_release_worth_waiting_for(statuses: tuple[str, ...]) -> None:
    assert not are_free(rows(*statuses))


class Noting(Cell):
    """A cell that notes as of which version its rows are asked for."""

    asked: int | None = None

    async def jobs(self, cell: str, *, at_least: int | None = None, **more: Any) -> Read[tuple[JobRow, ...]]:
        self.asked = at_least
        return await super().jobs(cell, at_least=at_least, **more)


async def test_the_other_elements_are_counted_as_of_the_newest_answer() -> None:
    cell = Noting(rows("held", "held"), [News("main", e.JobHeld(job=f"many.{n}"), 6 + n) for n in (0, 1)])
    await hold.outcome_of(cell, HOLD, "many", 60_000)  # type: ignore[arg-type]
    assert cell.asked == 7


@pytest.mark.parametrize(("job", "text"), [("many", "none of its elements waits"), ("one", "it is running")])
def test_where_nothing_is_held_there_is_nothing_to_release(job: str, text: str) -> None:
    no = News("main", e.JobRefused(job=job, request="release", code=RefuseCode.WRONG_STATE, text=text), 7)
    outcome = hold.told_of(ReleaseJob(cell="main", job=job), hold.Held([no]), 20)
    assert (outcome.answer, outcome.code) == (f"Nothing to release: {job} is not held ({text}).", Exit.NO)
