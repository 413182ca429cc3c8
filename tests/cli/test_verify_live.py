from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from fallow.cli.verify.verification import LiveCheck, join
from fallow.cli.verify.verify import Verification
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.snapshots import NoUsableSnapshot, write_snapshot
from fallow.shared.view.keys import keys_of
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from tests.cli.cells import publish, show
from tests.cli.logs import an_honest_log, enqueued


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


def test_several_cells_give_one_answer() -> None:
    one = Verification(True, 0, 5, 5, 0, 10, None, forged=1, gaps=10, gaps_at_end=100)
    two = Verification(True, 3, 9, 6, 1, 12, None, forged=2, gaps=20, gaps_at_end=200)
    assert join([one, two]) == Verification(True, 0, 9, 11, 1, 22, None, forged=3, gaps=30, gaps_at_end=300)
