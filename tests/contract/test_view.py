"""What the view's functions must do, held against Lua in this process and against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any

import pytest
import pytest_asyncio

from fallow.services.projector.app.apply import all_rows, rows_of_touched, stand_of, totals_of
from fallow.services.projector.app.machine import Projection
from fallow.services.projector.app.steps import Outcome, take_step
from fallow.shared.cluster.fold.fold import LogRecord, fold
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.view.compare import ViewMoved, compare_view
from fallow.shared.view.keys import keys_of
from fallow.shared.view.reader import NoSuchCell, Read, ViewBehind, ViewFenced, ViewReader, ViewRebuilding
from fallow.shared.view.row_batch import Rows, Stand, Totals
from fallow.shared.view.store import Applied, Behind, Busy, CellView, Further, NotReady, Stands, ViewMisused
from tests.histories import CELL, History, folded, log_records
from tests.view.view_worlds import LuaWorld, RedisWorld, World

NOTHING = Stand(0, 0, "", 0, "[]")


@pytest_asyncio.fixture(params=["lua", "redis"])
async def world(request: pytest.FixtureRequest, namespace: str) -> AsyncIterator[World]:
    if request.param == "lua":
        yield LuaWorld()
        return
    world = RedisWorld(request.getfixturevalue("redis_url"), namespace, CELL)
    yield world
    await world.flush()
    await world.close()


@pytest.fixture
def view(world: World, namespace: str) -> CellView:
    return CellView(world.functions, keys_of(namespace, CELL))


@pytest.fixture
def reader(world: World, namespace: str) -> ViewReader:
    return ViewReader(world.functions, namespace)


def at(cursor: int) -> Stand:
    return Stand(cursor, cursor, f"chain-{cursor}", 5, "[]")


async def empty_view(view: CellView, stand: Stand = NOTHING) -> None:
    assert await view.begin_rebuild("r0", None, 0) == Applied()
    assert await view.finish_rebuild("r0", stand, Totals(0, 0, 0, 0))


async def whole_view(view: CellView, state: CellState, rebuild: str = "r1") -> None:
    assert await view.begin_rebuild(rebuild, None, 0) == Applied()
    for rows in all_rows(state, 7):
        assert await view.load_rows(rebuild, rows, 0)
    assert await view.finish_rebuild(rebuild, stand_of(state), totals_of(state))


def enqueued(version: int, *specs: JobSpec, submit_ms: int = 0) -> Decision:
    effects = tuple(e.JobEnqueued(spec=spec, submit_ms=submit_ms, digest="0" * 32) for spec in specs)
    return Decision(cell=CELL, version=version, epoch=0, at_ms=0, effects=effects)


@pytest.mark.parametrize("seed", range(6))
async def test_the_view_equals_the_fold_after_every_batch(view: CellView, reader: ViewReader, seed: int) -> None:
    state, projection = CellState(CELL), Projection()
    records = iter(log_records(History(seed).decisions(200)))
    assert await settle(view, projection, state) == [Outcome.ASKED, Outcome.REBUILT]
    for batch in (1, 2, 3, 5, 8, 13, 21, 34, 40):
        live(projection, state, islice(records, batch))
        assert await settle(view, projection, state) == [Outcome.APPLIED]
        assert await compare_view(reader, state) == []


def live(projection: Projection, state: CellState, records: Iterable[LogRecord]) -> None:
    for record in records:
        projection.before_fold(state, record)
        fold(state, record)


async def step(view: CellView, projection: Projection, state: CellState) -> Outcome:
    return (await take_step(view, projection, state, rebuild_id="r-test", wall_ms=lambda: 0)).outcome


async def test_a_step_that_finds_no_whole_view_or_an_older_one_says_why(world: World, view: CellView) -> None:
    history, projection = History(6), Projection()
    state = folded(history.decisions(50))
    await settle(view, projection, state)
    kept = await world.keep()
    live(projection, state, log_records(history.decisions(5), 50, state.chain))
    await settle(view, projection, state)
    await world.lose_tail(kept)
    live(projection, state, log_records(history.decisions(1), 55, state.chain))
    took = await take_step(view, projection, state, rebuild_id="r-1", wall_ms=lambda: 0)
    assert (took.outcome, took.why) == (Outcome.BEHIND, "it stands at 50 and stood at 55")
    await settle(view, projection, state)
    await world.flush()
    live(projection, state, log_records(history.decisions(1), 56, state.chain))
    took = await take_step(view, projection, state, rebuild_id="r-2", wall_ms=lambda: 0)
    assert (took.outcome, took.why) == (Outcome.NOT_READY, "there is no whole view")


@pytest.mark.parametrize("seed", range(3))
async def test_a_view_that_is_built_at_once_equals_the_fold(view: CellView, reader: ViewReader, seed: int) -> None:
    state = folded(History(seed).decisions(150))
    await whole_view(view, state)
    assert await compare_view(reader, state) == []


async def test_a_view_moves_only_from_the_cursor_that_it_has(view: CellView) -> None:
    assert await view.apply(0, at(1), Rows()) == NotReady()
    await empty_view(view)
    assert await view.apply(0, at(9), Rows()) == Applied()
    assert await view.apply(0, at(9), Rows()) == Further(9)
    assert await view.apply(3, at(9), Rows()) == Further(9)
    assert await view.apply(10, at(11), Rows()) == Behind(9)
    assert await view.apply(9, at(10), Rows()) == Applied()
    assert await view.stands() == Stands(10, 10, "chain-10")


async def test_cursors_are_exact_where_floats_are_not(view: CellView) -> None:
    await empty_view(view, at(2**53))
    assert await view.apply(2**53 + 1, at(2**53 + 2), Rows()) == Behind(2**53)
    assert await view.apply(2**53, at(2**53 + 1), Rows()) == Applied()
    assert await view.stands() == Stands(2**53 + 1, 2**53 + 1, f"chain-{2**53 + 1}")


async def test_what_is_refused_changes_nothing(view: CellView, reader: ViewReader) -> None:
    state = folded(History(1).decisions(30))
    await whole_view(view, state)
    cursor, job = state.offset + 1, next(iter(state.jobs))
    changed = Rows(jobs=[(job, "other finished \n[]")], nodes_gone=list(state.nodes))
    assert await view.apply(cursor - 1, at(cursor + 1), changed) == Further(cursor)
    assert await view.apply(cursor + 1, at(cursor + 2), changed) == Behind(cursor)
    assert await view.load_rows("r1", changed, 0) is False
    assert await compare_view(reader, state) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("apply", ["x", "2", "1", "c", "0", "[]", "0", "0", "0", "0", "0", "0"]),
        ("apply", ["2", "1", "1", "c", "0", "[]", "0", "0", "0", "0", "0", "0"]),
        ("apply", ["1", "2", "1.5", "c", "0", "[]", "0", "0", "0", "0", "0", "0"]),
        ("apply", ["1", "2", "1", "c", "0", "[]", "1", "0", "0", "0", "0", "0", "job"]),
        ("apply", ["1", "2", "1", "c", "0", "[]", "1", "0", "0", "0", "0", "0", "job", "no header"]),
        ("apply", ["1", "2", "1", "c", "0", "[]", "-1", "0", "0", "0", "0", "0"]),
        ("apply", ["1", "2"]),
        ("begin_rebuild", ["", "", "0", "0"]),
        ("begin_rebuild", ["r", "x", "0", "0"]),
        ("begin_rebuild", ["r", "", "soon", "0"]),
        ("load_rows", ["r", "0", "0", "0", "0", "0", "0", "0", "more"]),
        ("load_rows", ["r", "", "0", "0", "0", "0", "0", "0"]),
        ("finish_rebuild", ["r", "1", "1", "c", "0", "[]", "0", "0", "0", "many"]),
        ("fence", []),
        ("fence", ["yes"]),
        ("read_jobs", ["", "", "0", "queued"]),
        ("read_queue", ["default", "10001"]),
    ],
)
async def test_wrong_arguments_are_an_error_before_anything_is_written(
    world: World, view: CellView, namespace: str, name: str, arguments: list[str]
) -> None:
    await empty_view(view, at(1))
    before = await world.keep()
    with pytest.raises(ViewMisused, match="FALLOW"):
        await world.functions.call(name, keys_of(namespace, CELL), arguments)
    assert same(before, await world.keep())


def same(before: object, after: object) -> bool:
    return vars_of(before) == vars_of(after)


def vars_of(kept: object) -> object:
    return kept if isinstance(kept, dict) else (kept.hashes, kept.names)  # type: ignore[attr-defined]


async def test_readers_are_told_of_a_rebuild_and_never_see_half(view: CellView, reader: ViewReader) -> None:
    state = folded(History(2).decisions(60))
    await whole_view(view, state)
    assert await view.begin_rebuild("r2", state.offset + 1, 0) == Applied()
    for rows in all_rows(state, 5):
        with pytest.raises(ViewRebuilding):
            await reader.summary(CELL)
        assert await view.load_rows("r2", rows, 0)
    assert await view.apply(state.offset + 1, at(999), Rows()) == NotReady()
    assert await view.stands() == NotReady()
    assert await view.finish_rebuild("r2", stand_of(state), totals_of(state))
    assert await compare_view(reader, state) == []


async def test_a_view_that_lost_rows_while_it_was_built_is_not_shown(view: CellView, reader: ViewReader) -> None:
    state = folded(History(3).decisions(60))
    assert await view.begin_rebuild("r1", None, 0) == Applied()
    rows = list(all_rows(state, 5))
    for some in rows[:-1]:
        assert await view.load_rows("r1", some, 0)
    assert not await view.finish_rebuild("r1", stand_of(state), totals_of(state))
    assert await view.load_rows("r1", rows[-1], 0)
    assert await view.load_rows("r1", rows[0], 0)
    assert await view.finish_rebuild("r1", stand_of(state), totals_of(state))
    assert await compare_view(reader, state) == []


async def test_a_rebuild_is_left_alone_until_it_rests_too_long(view: CellView) -> None:
    assert await view.begin_rebuild("r1", None, 100_000) == Applied()
    assert await view.begin_rebuild("r2", None, 104_999) == Busy()
    assert await view.load_rows("r1", Rows(tenants=[("acme", "[]")]), 104_000)
    assert await view.begin_rebuild("r2", None, 108_999) == Busy()
    assert await view.begin_rebuild("r2", None, 109_000) == Applied()
    assert not await view.load_rows("r1", Rows(tenants=[("birch", "[]")]), 109_001)
    assert not await view.finish_rebuild("r1", at(5), Totals(0, 0, 1, 0))
    assert await view.finish_rebuild("r2", at(6), Totals(0, 0, 0, 0))
    assert await view.stands() == Stands(6, 6, "chain-6")


async def test_a_ready_view_is_not_forgotten_by_one_who_did_not_look(view: CellView) -> None:
    await empty_view(view, at(7))
    assert await view.begin_rebuild("r2", None, 0) == Further(7)
    assert await view.begin_rebuild("r2", 6, 0) == Further(7)
    assert await view.begin_rebuild("r2", 7, 0) == Applied()


async def test_each_answer_has_its_version_and_none_is_older_than_asked(view: CellView, reader: ViewReader) -> None:
    state = folded(History(4).decisions(40))
    await whole_view(view, state)
    read = await reader.nodes(CELL, at_least=40)
    assert (read.version, read.offset, read.at_ms) == (40, 39, state.at_ms)
    with pytest.raises(ViewBehind, match="at version 40, 41 was asked for"):
        await reader.nodes(CELL, at_least=41)
    with pytest.raises(ViewMoved):
        await compare_view(reader, folded(History(4).decisions(41)))


async def test_a_cell_without_a_view_is_unknown_unless_the_reader_knows_better(world: World, namespace: str) -> None:
    with pytest.raises(NoSuchCell):
        await ViewReader(world.functions, namespace).summary("nowhere")
    with pytest.raises(NoSuchCell):
        await ViewReader(world.functions, namespace, [CELL]).summary("nowhere")
    with pytest.raises(ViewRebuilding):
        await ViewReader(world.functions, namespace, [CELL]).summary(CELL)


async def test_jobs_come_in_pages_by_id_and_by_tenant_and_status(view: CellView, reader: ViewReader) -> None:
    state = folded(History(2).decisions(200))
    await whole_view(view, state)
    expected = sorted([*state.jobs, *state.finished])
    first = (await reader.jobs(CELL, limit=20)).value
    second = (await reader.jobs(CELL, limit=1_000, after=first[-1].id)).value
    assert [job.id for job in first + second] == expected
    waiting = (await reader.jobs(CELL, tenant="birch", statuses=[JobStatus.QUEUED], limit=1_000)).value
    assert [job.id for job in waiting] == [
        job_id
        for job_id, job in sorted(state.jobs.items())
        if (job.spec.tenant, job.status) == ("birch", JobStatus.QUEUED)
    ]
    assert waiting
    of_tenant = (await reader.jobs(CELL, tenant="birch", limit=1_000)).value
    assert {job.tenant for job in of_tenant} == {"birch"}
    assert len(of_tenant) > len(waiting)
    assert (await reader.jobs(CELL, tenant="bir", limit=1_000)).value == ()


async def test_a_job_is_found_by_its_id_or_not_at_all(view: CellView, reader: ViewReader) -> None:
    state = folded([enqueued(1, JobSpec(id="a", tenant="acme", queue="night"))])
    await whole_view(view, state)
    job = (await reader.job(CELL, "a")).value
    assert job is not None
    assert (job.status, job.queue, job.position, job.gpus_milli) == (JobStatus.QUEUED, "night", 0, 1_000)
    assert (await reader.job(CELL, "b")).value is None


async def test_jobs_of_one_id_are_rows_of_their_own_and_pages_go_on_behind_the_longest_names(
    view: CellView, reader: ViewReader
) -> None:
    tenants = ("a", "a-b", "t" * 63)
    named = [(tenant, f"{tenant}/{'x' * 126}.{number}") for tenant in tenants for number in range(3)]
    named += [(tenant, f"{tenant}/hello") for tenant in tenants]
    await whole_view(view, folded([enqueued(1, *(JobSpec(id=job, tenant=tenant) for tenant, job in named))]))
    pages, after = list[str](), ""
    while found := [row.id for row in (await reader.jobs(CELL, limit=2, after=after)).value]:
        pages += found
        after = found[-1]
    assert pages == sorted(job for _, job in named)
    for tenant, job in named:
        row = (await reader.job(CELL, job)).value
        assert row is not None
        assert (row.id, row.tenant) == (job, tenant)
    own = (await reader.jobs(CELL, tenant="a")).value
    assert [row.id for row in own] == sorted(job for tenant, job in named if tenant == "a")


async def test_a_queue_stands_in_the_order_in_which_it_is_served(view: CellView, reader: ViewReader) -> None:
    spec = JobSpec(id="c", tenant="acme", queue="a")
    named = [
        replace(spec, id=job_id, priority=priority, queue=queue)
        for job_id, priority, queue in [
            ("low", -1_000_000, "a"),
            ("high", 1_000_000, "a"),
            ("mid-2", 0, "a"),
            ("mid-1", 0, "a"),
            ("other", 5, "a-b"),
            ("none", 5, None),
        ]
    ]
    late = enqueued(2, replace(spec, id="early-bird"), submit_ms=9_000_000)
    state = folded([enqueued(1, *named), late])
    await whole_view(view, state)
    queue = (await reader.queue(CELL, "a", limit=4)).value
    assert [(job.id, job.position) for job in queue.jobs] == [
        ("high", 0),
        ("mid-2", 1),
        ("mid-1", 2),
        ("early-bird", 3),
    ]
    assert queue.length == 5
    last = (await reader.job(CELL, "low")).value
    assert last is not None
    assert last.position == 4
    assert (await reader.summary(CELL)).value.queues == {"": 1, "a": 5, "a-b": 1}


async def test_a_lost_tail_and_a_flush_are_noticed_and_mended(world: World, view: CellView, reader: ViewReader) -> None:
    history, projection = History(6), Projection()
    state = folded(history.decisions(50))
    assert await settle(view, projection, state) == [Outcome.ASKED, Outcome.REBUILT]
    kept = await world.keep()
    live(projection, state, log_records(history.decisions(5), 50, state.chain))
    assert await settle(view, projection, state) == [Outcome.APPLIED]
    await world.lose_tail(kept)
    live(projection, state, log_records(history.decisions(1), 55, state.chain))
    assert await settle(view, projection, state) == [Outcome.BEHIND, Outcome.REBUILT]
    await world.flush()
    live(projection, state, log_records(history.decisions(1), 56, state.chain))
    assert await settle(view, projection, state) == [Outcome.NOT_READY, Outcome.REBUILT]
    assert await compare_view(reader, state) == []


@pytest.mark.parametrize("number", range(6))
async def test_a_view_that_lost_one_of_its_keys_is_shown_to_nobody_and_is_built_anew(
    world: World, view: CellView, reader: ViewReader, namespace: str, number: int
) -> None:
    history, projection = History(6), Projection()
    state = folded(history.decisions(50))
    await settle(view, projection, state)
    await world.lose_key(keys_of(namespace, CELL)[number])
    reads = (
        reader.job(CELL, next(iter(state.jobs))),
        reader.jobs(CELL),
        reader.nodes(CELL),
        reader.tenants(CELL),
        reader.queue(CELL, "default"),
        reader.summary(CELL),
    )
    for read in reads:
        with pytest.raises((ViewRebuilding, NoSuchCell)):
            await read
    assert await view.stands() == NotReady()
    live(projection, state, log_records(history.decisions(1), 50, state.chain))
    assert await settle(view, projection, state) == [Outcome.NOT_READY, Outcome.REBUILT]
    assert await compare_view(reader, state) == []


async def settle(view: CellView, projection: Projection, state: CellState) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while (outcome := await step(view, projection, state)) is not Outcome.RESTED:
        outcomes.append(outcome)
    return outcomes


async def test_rows_are_made_of_the_state_as_it_is_now(view: CellView, reader: ViewReader) -> None:
    history, projection = History(8), Projection()
    state = CellState(CELL)
    await settle(view, projection, state)
    live(projection, state, log_records(history.decisions(120)))
    rows = rows_of_touched(state, projection.touched)
    assert await view.apply(0, stand_of(state), rows) == Applied()
    assert await view.apply(0, stand_of(state), rows) == Further(120)
    assert await compare_view(reader, state) == []


async def test_a_step_may_have_more_rows_than_fit_into_one_command(view: CellView, reader: ViewReader) -> None:
    specs = [JobSpec(id=f"job-{number}", tenant="acme", queue="night") for number in range(4_500)]
    waiting = [enqueued(1, *specs)]
    gone = Decision(
        cell=CELL, version=2, epoch=0, at_ms=0, effects=tuple(e.JobCancelled(job=spec.id) for spec in specs[1:])
    )
    state, projection = CellState(CELL), Projection()
    await settle(view, projection, state)
    live(projection, state, log_records(waiting))
    assert await settle(view, projection, state) == [Outcome.APPLIED]
    assert (await reader.summary(CELL)).value.queues == {"night": 4_500}
    live(projection, state, log_records([gone], 1, state.chain))
    assert await settle(view, projection, state) == [Outcome.APPLIED]
    assert await compare_view(reader, state) == []


async def test_a_fence_is_seen_by_every_read_and_changes_no_row(view: CellView, reader: ViewReader) -> None:
    state = folded(History(1).decisions(30))
    await whole_view(view, state)
    await view.fence(is_fenced=True)
    reads: list[Read[Any]] = [
        await reader.job(CELL, next(iter(state.jobs))),
        await reader.jobs(CELL),
        await reader.nodes(CELL),
        await reader.tenants(CELL),
        await reader.queue(CELL, "default"),
        await reader.summary(CELL),
    ]
    assert all(read.is_fenced for read in reads)
    assert await compare_view(reader, state) == []
    await view.fence(is_fenced=False)
    assert not (await reader.summary(CELL)).is_fenced


async def test_a_fenced_cell_without_a_view_is_not_said_to_be_built(view: CellView, reader: ViewReader) -> None:
    await view.fence(is_fenced=True)
    with pytest.raises(ViewFenced, match="fenced"):
        await reader.summary(CELL)


async def test_who_has_folded_the_log_to_where_the_view_is_lifts_the_fence(view: CellView, reader: ViewReader) -> None:
    records = log_records(History(1).decisions(30))
    state, projection = CellState(CELL), Projection()
    live(projection, state, records)
    await settle(view, projection, state)
    await view.fence(is_fenced=True)
    behind = CellState(CELL)
    assert await step(view, Projection(), behind) is Outcome.ASKED
    assert (await reader.summary(CELL)).is_fenced
    projection.look_again()
    assert await settle(view, projection, state) == [Outcome.ASKED]
    assert not (await reader.summary(CELL)).is_fenced
