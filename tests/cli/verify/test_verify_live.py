from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from fallow.cli.verify.verification import LiveCheck, join
from fallow.cli.verify.verify import LogCheck, NotCompared, Verification
from fallow.cli.verify.verify_command import tell
from fallow.shared.cluster.checks.run_journal import DiaryLine, check_diaries
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import JobEnqueued, JobRunning, WorkersSettled
from fallow.shared.events.fields.values import JobSpec, Resources
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import ORIGIN, Catalogue
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.reading import event_of
from fallow.shared.log.snapshots import NoUsableSnapshot, write_snapshot
from fallow.shared.view.keys import keys_of
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from tests.cli.worlds.cells import publish, show
from tests.cli.worlds.logs import LogWriter, an_honest_log, enqueued, place, started


@pytest.fixture
def layout(namespace: str) -> Layout:
    return Layout(namespace, {"main": 0})


@pytest.fixture
def broker(namespace: str) -> MemoryBroker:
    made = MemoryBroker()
    made.create_topic(f"{namespace}.decisions", 1)
    made.create_topic(f"{namespace}.snapshots", 1)
    return made


@pytest.fixture
async def view(redis_url: str, namespace: str) -> AsyncIterator[ViewReader]:
    functions = RedisFunctions(redis_url)
    yield ViewReader(functions, namespace, ["main"])
    await functions.stop()


async def test_a_live_log_is_checked_from_its_beginning(broker: MemoryBroker, layout: Layout) -> None:
    log = MemoryLog(broker)
    await publish(log, an_honest_log().records, layout.namespace)
    live = LiveCheck(log, layout, "main")
    assert await live.run() == Verification(
        ok=True, from_version=0, to_version=9, records=10, skipped=1, checks=20, first_violation=None
    )
    assert live.start_text == "its beginning"


async def test_transactions_of_a_stranger_are_no_offence_in_the_middle_of_a_log_nor_at_its_end(
    broker: MemoryBroker, layout: Layout
) -> None:
    log, records = MemoryLog(broker), an_honest_log().records
    await publish(log, records[:4], layout.namespace)
    broker.write_marker(layout.tp("decisions", "main"))
    await publish(log, records[4:], layout.namespace)
    broker.write_marker(layout.tp("decisions", "main"))
    found = await LiveCheck(log, layout, "main").run()
    assert (found.ok, found.to_version, found.records, found.gaps, found.gaps_at_end) == (True, 9, 10, 1, 1)


async def test_a_log_that_has_lost_its_beginning_is_checked_from_the_oldest_snapshot(
    broker: MemoryBroker, layout: Layout
) -> None:
    log, written, catalogue = MemoryLog(broker), an_honest_log(), Catalogue()
    await publish(log, written.records, layout.namespace)
    await write_snapshot(log, layout, written.state, catalogue, writer="w", wall_ms=0)
    later = len(written.records)
    written.write(enqueued("fourth"))
    await publish(log, written.records[later:], layout.namespace)
    broker.delete_before(layout.tp("decisions", "main"), later)
    live = LiveCheck(log, layout, "main")
    found = await live.run()
    assert (found.ok, found.from_version, found.to_version, found.records) == (True, 9, 10, 1)
    assert live.start_text == "the snapshot at version 9"


async def test_a_log_without_beginning_and_snapshot_cannot_be_checked(broker: MemoryBroker, layout: Layout) -> None:
    log = MemoryLog(broker)
    await publish(log, an_honest_log().records, layout.namespace)
    broker.delete_before(layout.tp("decisions", "main"), 3)
    with pytest.raises(NoUsableSnapshot):
        await LiveCheck(log, layout, "main").run()


async def test_a_view_that_shows_the_log_passes(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader
) -> None:
    written = an_honest_log()
    await publish(MemoryLog(broker), written.records, layout.namespace)
    await show(redis_url, layout.namespace, written.state)
    assert (await LiveCheck(MemoryLog(broker), layout, "main", view).run()).ok


async def test_a_view_that_is_behind_the_log_is_compared_where_it_is(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader
) -> None:
    written = an_honest_log()
    await show(redis_url, layout.namespace, written.state)
    written.write(enqueued("later"))
    await publish(MemoryLog(broker), written.records, layout.namespace)
    found = await LiveCheck(MemoryLog(broker), layout, "main", view).run()
    assert (found.ok, found.to_version, found.view_behind) == (True, 10, 1)
    assert found.as_json()["view_behind"] == 1


async def test_a_view_that_comes_to_the_end_of_the_log_within_a_moment_is_not_behind(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader
) -> None:
    written = an_honest_log()
    await show(redis_url, layout.namespace, written.state)
    seen = written.state.offset + 1
    written.write(enqueued("later"))
    await publish(MemoryLog(broker), written.records, layout.namespace)
    run = asyncio.create_task(LiveCheck(MemoryLog(broker), layout, "main", view).run())
    await asyncio.sleep(0.5)
    await show(redis_url, layout.namespace, written.state, seen)
    assert (await run).view_behind == 0


@pytest.mark.parametrize(
    ("key", "row", "what"),
    [("nodes", "node-1", "node node-1"), ("jobs", "third", "job third"), ("tenants", "vision", "tenant vision")],
)
async def test_a_changed_key_of_redis_is_found(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader, key: str, row: str, what: str
) -> None:
    written = an_honest_log()
    await publish(MemoryLog(broker), written.records, layout.namespace)
    await show(redis_url, layout.namespace, written.state)
    names = dict(zip(("meta", "jobs", "nodes", "tenants"), keys_of(layout.namespace, "main"), strict=False))
    redis: Redis = Redis.from_url(redis_url, decode_responses=True)
    text = str(await redis.hget(names[key], row))
    changed = text.replace("8", "7") if "8" in text else text.replace("third", "thirt")
    await redis.hset(names[key], row, changed)
    await redis.aclose()
    violation = (await LiveCheck(MemoryLog(broker), layout, "main", view).run()).first_violation
    assert violation is not None
    assert (violation.offset, violation.version, violation.invariant) == (None, 9, "I7")
    assert violation.text.startswith(f"{what}: the view shows ")


async def test_a_view_that_knows_more_than_the_log_is_found(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader
) -> None:
    written = an_honest_log()
    await show(redis_url, layout.namespace, written.state)
    await publish(MemoryLog(broker), written.records[:-1], layout.namespace)
    violation = (await LiveCheck(MemoryLog(broker), layout, "main", view).run()).first_violation
    assert violation is not None
    assert violation.text == "the view is at version 9, the log ends at 8"


async def test_a_view_that_is_not_built_is_no_answer(
    broker: MemoryBroker, layout: Layout, redis_url: str, view: ViewReader
) -> None:
    await show(redis_url, f"{layout.namespace}-other", an_honest_log().state)
    with pytest.raises(ViewRebuilding):
        await LiveCheck(MemoryLog(broker), layout, "main", view).run()


async def test_diaries_are_compared_with_the_live_log(broker: MemoryBroker, layout: Layout, tmp_path: Path) -> None:
    await publish(MemoryLog(broker), an_honest_log().records, layout.namespace)
    begun = '{"node":"node-0","job":"first","attempt":1,"event":"started","devices":[0,1],"cell_ms":0,"wall_ms":0}'
    (tmp_path / "node-0.jsonl").write_text(f"{begun}\n", encoding="utf-8")
    found = await LiveCheck(MemoryLog(broker), layout, "main").run([tmp_path])
    assert found.first_violation is not None
    assert found.first_violation.text.endswith("was confirmed and its node never began it")


def told_of(job: str, node: str, ordered_ms: int | None, event: str, *devices: int) -> str:
    said = {"node": node, "job": job, "attempt": 1, "event": event, "devices": devices, "ordered_ms": ordered_ms}
    return json.dumps({**said, "cell_ms": ordered_ms or 0, "wall_ms": 0}) + "\n"


ENDED = NotCompared("main", until_version=10, lines=3)
OLD_RUNS = [
    told_of("first", "node-0", 4, "started", 0, 1),
    told_of("first", "node-0", 4, "ended"),
    told_of("second", "node-1", 7, "started", 0, 1, 2, 3),
]


async def a_later_run(broker: MemoryBroker, layout: Layout, *, is_moved: bool) -> LogWriter:
    """A log whose first ten versions are gone: deleted, or left in another Kafka. The fourth job runs since."""
    log, written = MemoryLog(broker), an_honest_log()
    written.write(enqueued("fourth", 4))
    later = 0 if is_moved else len(written.records)
    if is_moved:
        written.state.offset = -1
        written.records.clear()
    else:
        await publish(log, written.records, layout.namespace)
    await write_snapshot(
        log, layout, written.state, Catalogue(), writer="w", wall_ms=0, more_slots=(ORIGIN,) if is_moved else ()
    )
    written.write(started("fourth", place(1, 4, 5, 6, 7)), at_ms=written.state.at_ms + 5)
    written.write(JobRunning(job="fourth", attempt=1))
    await publish(log, written.records[later:], layout.namespace)
    broker.delete_before(layout.tp("decisions", "main"), later)
    return written


@pytest.mark.parametrize("is_moved", [False, True])
async def test_diaries_are_compared_with_what_a_log_without_its_beginning_still_orders(
    broker: MemoryBroker, layout: Layout, tmp_path: Path, is_moved: bool
) -> None:
    written = await a_later_run(broker, layout, is_moved=is_moved)
    begun_ms = written.state.at_ms - 1
    (tmp_path / "node-1.jsonl").write_text(
        "".join([*OLD_RUNS, told_of("fourth", "node-1", begun_ms, "started", 4, 5, 6, 7)]), encoding="utf-8"
    )
    found = await LiveCheck(MemoryLog(broker), layout, "main").run([tmp_path])
    assert (found.ok, found.from_version, found.to_version) == (True, 10, 12)
    assert found.runs_not_checked == (ENDED,)
    assert found.as_json()["runs_not_checked"] == ({"cell": "main", "until_version": 10, "lines": 3},)
    assert found.checks == (await LiveCheck(MemoryLog(broker), layout, "main").run()).checks + 1


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "attempt 1 of job fourth on node node-1 was confirmed and its node never began it"),
        (
            [told_of("fourth", "node-1", 15, "started", 4)],
            "attempt 1 of job fourth on node node-1 was begun on devices [4], ordered on [4, 5, 6, 7]",
        ),
        (
            [
                told_of("fourth", "node-1", 15, "started", 4, 5, 6, 7),
                told_of("fifth", "node-1", 16, "started", 0),
            ],
            "attempt 1 of job fifth on node node-1 was begun and never ordered",
        ),
    ],
)
async def test_an_offence_of_a_later_run_is_found_in_a_log_without_its_beginning(
    broker: MemoryBroker, layout: Layout, tmp_path: Path, is_moved: bool, lines: list[str], text: str
) -> None:
    await a_later_run(broker, layout, is_moved=is_moved)
    (tmp_path / "node-1.jsonl").write_text("".join([*OLD_RUNS, *lines]), encoding="utf-8")
    found = await LiveCheck(MemoryLog(broker), layout, "main").run([tmp_path])
    assert found.first_violation is not None
    assert (found.first_violation.invariant, found.first_violation.text) == ("I6", text)


async def test_lines_that_do_not_say_when_their_run_was_ordered_are_judged_where_the_log_knows_it(
    broker: MemoryBroker, layout: Layout, tmp_path: Path
) -> None:
    await a_later_run(broker, layout, is_moved=False)
    (tmp_path / "node-1.jsonl").write_text(
        told_of("first", "node-0", None, "started", 0, 1)
        + told_of("fourth", "node-1", None, "started", 4, 5, 6, 7) * 2,
        encoding="utf-8",
    )
    found = await LiveCheck(MemoryLog(broker), layout, "main").run([tmp_path])
    assert found.runs_not_checked == (NotCompared("main", until_version=10, lines=1),)
    assert found.first_violation is not None
    assert found.first_violation.text == "attempt 1 of job fourth on node node-1 was begun twice"


def test_the_workers_of_a_job_that_was_accepted_before_the_log_begins_are_runs_of_their_own() -> None:
    written = an_honest_log()
    spec = JobSpec(id="alone", tenant="vision", workers=1, gang=False, resources=Resources(gpu_milli=1000))
    written.write(JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32))
    orders = LogCheck(written.state).orders
    for effect in (started("alone", place(1, 4)), WorkersSettled(job="alone", attempt=1, joined=(0,))):
        decision = event_of(written.write(effect, at_ms=20))
        assert isinstance(decision, Decision)
        orders.take(decision)
    line = DiaryLine(node="node-1", job="alone", attempt=1, event="started", devices=(4,), cell_ms=20, wall_ms=0)
    assert check_diaries(orders, [replace(line, rank=0, ordered_ms=20)]) == []
    assert [offence.text for offence in check_diaries(orders, [])] == [
        "worker 0 of attempt 1 of job alone on node node-1 was confirmed and its node never began it"
    ]


def test_what_was_not_held_against_diaries_is_told_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Verification(True, 10, 12, 2, 0, 4, None, runs_not_checked=(ENDED,)), "cell main from the snapshot")
    assert capsys.readouterr().out.splitlines()[2] == (
        "not compared with the diaries: what cell main ordered up to version 10, since its log is there only from then "
        "on (3 diary lines)"
    )


def test_several_cells_give_one_answer() -> None:
    one = Verification(True, 0, 5, 5, 0, 10, None, forged=1, gaps=10, gaps_at_end=100)
    two = Verification(True, 3, 9, 6, 1, 12, None, forged=2, gaps=20, gaps_at_end=200)
    assert join([one, two]) == Verification(True, 0, 9, 11, 1, 22, None, forged=3, gaps=30, gaps_at_end=300)
