"""A command whose cell file lacks the key by which its cell signs tells nothing of what it cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import typer

from fallow.cli.access import Access
from fallow.cli.errors.failures import Exit
from fallow.cli.errors.unanswered import AnswerUnread, check_silence
from fallow.cli.job import cancel, hold, scale, submit
from fallow.cli.job.submit import Until, found_of, tell_and_end
from fallow.cli.node.answers import answers_to, outcome
from fallow.cli.node.operate import give
from fallow.shared.client.direct import DirectClient
from fallow.shared.client.port import Mark, News
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import digest_of
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.operations import CellPolicy, HoldJob, Operation, RemoveNode, SetPolicy
from fallow.shared.events.submissions import JobChanges
from fallow.shared.log.keys.ed25519 import SigningKey
from fallow.shared.log.layout import Layout
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.view.reader import Read
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.rows import JobRow
from tests.signing import NEXT, WRITERS, believing, public, signed

PLAIN = Layout("t", {"main": 0})
LAYOUT = believing(PLAIN, public(WRITERS), cell="main")
TOPICS = ("decisions", "jobs", "submissions", "operations")
TRAIN = JobSpec(id="train", tenant="vision")
JOB = "vision/train"
POLICY = SetPolicy(cell="main", policy=CellPolicy(), fields=("placement",))
ENQUEUED = e.JobEnqueued(spec=JobSpec(id=JOB, tenant="vision"), submit_ms=0, digest=digest_of(TRAIN))


class Cell(DirectClient):
    """A client by a cell file that names one key. To each wish the cell answers so, signed with `key`, and its view
    shows this row from then on.
    """

    def __init__(self, key: SigningKey, *effects: e.AnyEffect, status: str = "") -> None:
        broker = MemoryBroker()
        for topic in TOPICS:
            broker.create_topic(PLAIN.topic(topic), 1)
        self.functions = RedisFunctions("redis://127.0.0.1:1/0")
        self._answers_log, self._key, self._effects, self._version = MemoryLog(broker), key, effects, 4
        self._rows = (JobRow(JOB, "vision", JobStatus(status)),) if status else ()
        super().__init__(MemoryLog(broker), self.functions, LAYOUT, source="test", known_tenants=["vision"])

    async def decide(self, key: SigningKey, *effects: e.AnyEffect) -> None:
        self._version += 1
        decision = Decision(cell="main", version=self._version, epoch=1, at_ms=7, effects=effects)
        await self._answers_log.publish(signed(PLAIN, [decision], key))

    async def _answered(self, mark: Mark) -> Mark:
        await self.decide(self._key, *self._effects)
        return mark

    async def submit(self, jobs: Sequence[JobSpec], *, submit_ms: int | None = None) -> Mark:
        return await self._answered(await super().submit(jobs))

    async def operate(self, operation: Operation) -> Mark:
        return await self._answered(await super().operate(operation))

    async def update(self, job: str, tenant: str, changes: JobChanges, *, cell: str | None = None) -> Mark:
        return await self._answered(await super().update(job, tenant, changes, cell=cell))

    async def cancel(self, job: str, tenant: str, *, cell: str | None = None, reason: str = "") -> Mark:
        return await self._answered(await super().cancel(job, tenant, cell=cell, reason=reason))

    async def job(self, cell: str, job: str, *, at_least: int | None = None) -> Read[JobRow | None]:
        return Read(next((row for row in self._rows if row.id == job), None), 1, 0, 0)

    async def jobs(self, cell: str, **_: Any) -> Read[tuple[JobRow, ...]]:
        return Read((), 1, 0, 0)


Made = Callable[..., Cell]


@pytest.fixture
async def a_cell() -> AsyncIterator[Made]:
    made: list[Cell] = []

    def make(*args: Any, **more: Any) -> Cell:
        made.append(Cell(*args, **more))
        return made[-1]

    yield make
    for cell in made:
        await cell.stop()
        await cell.functions.stop()


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in ((submit, ("LOOK_AFTER_MS", "ANSWER_MS", "LATE_ANSWER_MS")), (hold, ("LOOK_AFTER_MS",))):
        for name in names:
            monkeypatch.setattr(module, name, 5)
    monkeypatch.setattr(cancel, "LOOK_AFTER_MS", 5)


async def end_of_submit(cell: Cell, goal: Until | None, *jobs: JobSpec) -> int:
    sent = [*(jobs or [TRAIN])]
    found = await found_of(cell, sent, goal, 600, quiet=False)
    try:
        tell_and_end(sent, goal, 1, found, as_json=False)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.mark.parametrize("goal", [None, *Until])
@pytest.mark.parametrize("status", ["", "queued", "running", "finished", "failed"])
async def test_a_job_whose_answer_no_key_proves_is_not_said_to_be_there_before(
    goal: Until | None, status: str, a_cell: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await end_of_submit(a_cell(NEXT, ENQUEUED, status=status), goal)
    told = capsys.readouterr()
    assert (ended, "before" in told.out) == (Exit.AWAY, False)
    assert "signing.keys" in told.err
    assert "readyz" not in told.err


@pytest.mark.parametrize("goal", [None, Until.ACCEPTED])
async def test_a_forged_record_takes_no_answer_away_that_a_key_proves(goal: Until | None, a_cell: Made) -> None:
    cell = a_cell(WRITERS, ENQUEUED)
    await cell.decide(NEXT)
    assert await end_of_submit(cell, goal) == Exit.OK


async def test_what_was_forged_before_the_job_was_sent_says_nothing_of_it(a_cell: Made) -> None:
    cell = a_cell(WRITERS, e.JobReleased(job="vision/other"), status="finished")
    await cell.decide(NEXT, ENQUEUED)
    assert await end_of_submit(cell, None) == Exit.BEFORE


async def test_a_job_that_is_not_as_far_in_time_may_be_farther_than_can_be_read(
    a_cell: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = a_cell(WRITERS, ENQUEUED)

    async def submit_and_go_on(jobs: Sequence[JobSpec], **_: object) -> Mark:
        mark = await Cell.submit(cell, jobs)
        await cell.decide(NEXT, e.JobFinished(job=JOB, attempt=1))
        return mark

    cell.submit = submit_and_go_on  # type: ignore[method-assign]
    assert await end_of_submit(cell, Until.ENDED) == Exit.AWAY
    assert "not ended" not in capsys.readouterr().err


@pytest.mark.parametrize("status", ["stopping", "running", "queued"])
async def test_a_cancel_whose_answer_no_key_proves_is_no_earlier_cancel(status: str, a_cell: Made) -> None:
    cell = a_cell(NEXT, e.JobCancelled(job=JOB), status=status)
    (told,) = [each async for each in cancel.told_of_each(cell, [JOB], "vision", "main", "", 1)]
    assert told.code is Exit.AWAY
    assert "signing.keys" in told.answer


@pytest.mark.parametrize("status", ["held", "queued"])
async def test_a_hold_whose_answer_no_key_proves_is_no_earlier_hold(status: str, a_cell: Made) -> None:
    cell, wish = a_cell(NEXT, e.JobHeld(job=JOB), status=status), HoldJob(cell="main", job=JOB)
    told = hold.told_of(wish, await hold.outcome_of(cell, wish, JOB, 600), 1)
    assert told.code is Exit.AWAY
    assert "signing.keys" in told.answer


class AccessTo:
    """As much of the global options as a command uses that is given to one cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Cell]:
        yield self._cell


def access_to(cell: Cell) -> Access:
    return cast("Access", AccessTo(cell))


def is_policy(news: News) -> bool:
    return isinstance(news.event, e.PolicySet)


async def test_an_operator_whose_answer_no_key_proves_is_not_sent_to_the_services(a_cell: Made) -> None:
    cell = a_cell(NEXT, e.PolicySet(policy=CellPolicy()))
    with pytest.raises(AnswerUnread, match=r"no answer about x can be read: no key in signing\.keys"):
        await give(access_to(cell), POLICY, is_policy, 300, "x")
    for effect, is_there in ((e.PolicySet(policy=CellPolicy()), True), (e.JobReleased(job=JOB), False)):
        answer = await give(access_to(a_cell(WRITERS, effect)), POLICY, is_policy, 300, "x")
        assert (answer is not None) is is_there


async def test_a_service_whose_answer_no_key_proves_may_have_been_scaled(
    a_cell: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "WAIT_S", 1)
    cell = a_cell(NEXT, e.JobUpdated(job=JOB, tenant="vision", priority=0, workers=3))
    with pytest.raises(AnswerUnread, match=r"signing\.keys"):
        await scale._scale(access_to(cell), JOB, "vision", "main", JobChanges(workers=3))


async def test_of_several_nodes_those_whose_answers_can_be_read_are_told_as_ever(a_cell: Made) -> None:
    cell = a_cell(WRITERS, e.NodeRemoved(node="n1"))
    wishes = {node: RemoveNode(cell="main", node=node) for node in ("n1", "n2")}
    give_one, first = cell.operate, list[Operation]()

    async def operate(operation: Operation) -> Mark:
        mark = await give_one(operation)
        if not first:
            await cell.decide(NEXT, e.NodeRemoved(node="n2"))
        first.append(operation)
        return mark

    cell.operate = operate  # type: ignore[method-assign]
    answers = await answers_to(access_to(cell), wishes, (e.NodeRemoved,), 400)
    told = {node: outcome(node, answer, 1) for node, answer in answers.items()}
    assert [told[node]["ok"] for node in wishes] == [True, False]
    assert told["n2"]["answer"].startswith("no answer about n2 can be read: no key in signing.keys")


class Elsewhere(Cell):
    """Decisions of another cell were passed over."""

    def passed_over(self, since: Mark) -> tuple[str, ...]:
        return ("other",)


def test_what_was_passed_over_in_another_cell_says_nothing_of_a_silence_in_this_one() -> None:
    client, mark = Elsewhere(WRITERS), Mark({})
    check_silence(client, mark, JOB, "main")
    for cell in ("other", None):
        with pytest.raises(AnswerUnread, match="all that cell other decided since"):
            check_silence(client, mark, JOB, cell)


@pytest.mark.parametrize("goal", [None, Until.ACCEPTED])
@pytest.mark.parametrize(
    ("named", "ended", "told"),
    [("main", Exit.BEFORE, ""), ("other", Exit.AWAY, "cell other decided"), (None, Exit.AWAY, "cell other decided")],
)
async def test_a_job_may_be_answered_in_what_was_passed_over_in_the_cell_it_names_or_in_any(
    goal: Until | None, named: str | None, ended: Exit, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Elsewhere(WRITERS, e.JobReleased(job="vision/other"), status="finished")
    try:
        assert await end_of_submit(cell, goal, replace(TRAIN, cell=named)) == ended
    finally:
        await cell.stop()
        await cell.functions.stop()
    assert told in capsys.readouterr().err
