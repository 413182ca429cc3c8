"""What a log tells of records that were read long ago, of transactions and of its own clock, in memory and on Kafka."""

from __future__ import annotations

import asyncio
import time

import pytest

from fallow.shared.log.port import Appended, Log, LogTruncated, Outgoing, Reader
from tests.contract.eventually import eventually
from tests.contract.worlds.log_worlds import World

SECOND_MS = 1_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def write(log: Log, topic: str, *values: bytes) -> None:
    await log.publish([Outgoing(topic, value, partition=0) for value in values])


async def read_values(reader: Reader, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += [record.value for record in await reader.poll(wait_ms=200)]
    return found


async def test_the_last_record_before_an_offset_and_the_first_behind_it_are_told(world: World, log: Log) -> None:
    topic = await world.topic(2)
    tp, empty = (topic, 0), (topic, 1)
    await write(log, topic, b"a", b"b", b"c")
    await world.delete_before(tp, 1)

    found = await log.last_before({tp: 2, empty: 0})
    assert [(at, record.offset, record.value) for at, record in found.items()] == [(tp, 1, b"b")]
    assert (await log.last_before({tp: 3}))[tp].value == b"c"
    assert await log.last_before({tp: 1}) == {}, "deleted"
    assert await log.last_before({tp: 4}) == {}, "the partition does not reach that far"
    before = [await log.stands_before(tp, offset) for offset in (2, 3, 1, 4)]
    assert [record and (record.offset, record.value) for record in before] == [(1, b"b"), (2, b"c"), None, None]
    assert [await log.stands_before(empty, offset) for offset in (0, 1)] == [None, None]
    found = await log.first_from({tp: 0, empty: 0})
    assert [(at, record.offset, record.value) for at, record in found.items()] == [(tp, 1, b"b")]
    assert await log.first_from({tp: 3}) == {}, "not written yet"


async def test_a_look_costs_the_next_look_nothing(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await write(log, topic, *[b"%d" % n for n in range(100)])
    for offset in (99, 0, 50, 50):
        assert (await log.first_from({(topic, 0): offset}))[topic, 0].value == b"%d" % offset
        assert (await log.last_before({(topic, 0): offset + 1}))[topic, 0].value == b"%d" % offset
        stands = await log.stands_before((topic, 0), offset + 1)
        assert stands is not None
        assert stands.value == b"%d" % offset


async def test_what_a_transaction_leaves_behind_is_looked_past(world: World, log: Log) -> None:
    topic = await world.topic(1)
    tp = (topic, 0)
    await write(log, topic, b"before")
    await world.transaction(tp, [b"given up"] * 20, commits=False)
    end = (await log.end_offsets([tp]))[tp]
    last = (await log.last_before({tp: end}))[tp]
    assert (last.value, await log.stands_before(tp, end)) == (b"before", last)
    assert await log.first_from({tp: 1}) == {}
    await write(log, topic, b"behind")
    assert (await log.first_from({tp: 1}))[tp].value == b"behind"
    await world.delete_before(tp, 1)
    assert await log.last_before({tp: end}) == {}, "nothing is left before it but the transaction"
    assert await log.stands_before(tp, end) is None


async def test_only_what_a_transaction_has_committed_is_read(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await write(log, topic, b"before")
    await world.transaction((topic, 0), [b"given up"], commits=False)
    await world.transaction((topic, 0), [b"committed"], commits=True)
    await write(log, topic, b"behind")

    reader = log.reader({(topic, 0): 0})
    await reader.start()
    assert await read_values(reader, 3) == [b"before", b"committed", b"behind"]
    await reader.stop()
    end = (await log.end_offsets([(topic, 0)]))[topic, 0]
    assert end == 6, "the end of a transaction takes an offset of its own"
    found = {(await log.first_from({(topic, 0): offset}))[topic, 0].offset for offset in range(end - 1)}
    assert len(found) == 3


async def test_what_an_open_transaction_hides_is_written_but_cannot_be_read_yet(world: World, log: Log) -> None:
    topic = await world.topic(1)
    tp = (topic, 0)
    await write(log, topic, b"before")
    async with world.open_transaction(tp, [b"a", b"b"]):
        assert await log.end_offsets([tp]) == {tp: 1}
        assert await log.written_ends([tp]) == {tp: 3}
        assert await log.stands_before(tp, 3) is None

    async def is_readable() -> bool:
        return await log.end_offsets([tp]) == await log.written_ends([tp]) == {tp: 4}

    await eventually(is_readable)


async def test_a_topic_that_was_made_anew_holds_other_records(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await write(log, topic, b"a", b"b")
    assert await log.stands_before((topic, 0), 2) is not None
    await world.refill(topic)

    async def is_empty() -> bool:
        return not (await log.end_offsets([(topic, 0)]))[topic, 0]

    await eventually(is_empty)
    reader = log.reader({(topic, 0): 2})
    await reader.start()
    with pytest.raises(LogTruncated) as told:
        await read_values(reader, 1)
    assert (told.value.asked, told.value.begin, told.value.end) == (2, 0, 0)
    assert await log.stands_before((topic, 0), 2) is None
    await reader.stop()


async def test_an_append_tells_the_time_of_a_broker_that_stamps(world: World, log: Log) -> None:
    topic = await world.topic(1, stamped=True)
    before_ms = now_ms()
    answer = await log.append(Outgoing(topic, b"v", partition=0))
    assert isinstance(answer, Appended)
    assert answer.stamped_ms is not None
    assert before_ms - SECOND_MS <= answer.stamped_ms <= now_ms() + SECOND_MS


async def test_the_first_record_since_a_time_is_found(world: World, log: Log) -> None:
    topic = await world.topic(1, stamped=True)
    await write(log, topic, b"old")
    await asyncio.sleep(0.05)
    since_ms = now_ms()
    await asyncio.sleep(0.05)
    await write(log, topic, b"new")
    assert await log.first_since((topic, 0), 0) == 0
    assert await log.first_since((topic, 0), since_ms) == 1
    assert await log.first_since((topic, 0), now_ms() + 60 * SECOND_MS) is None


async def test_deleted_records_are_gone_for_good(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await write(log, topic, b"a", b"b", b"c")
    await log.delete_before((topic, 0), 2)
    assert await log.begin_offsets([(topic, 0)]) == {(topic, 0): 2}
