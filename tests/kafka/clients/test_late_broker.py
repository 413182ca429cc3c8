"""A writer whose broker answers each request a second late: one append is lost, and it goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.kafka.log import APPEND_BOUND_MS, KafkaLog
from fallow.shared.log.port import Appended, AppendUnknown, LogUnavailable, Outgoing, TopicPartition
from tests.contract.eventually import eventually
from tests.contract.worlds.log_worlds import KafkaWorld
from tests.kafka.worlds.late_proxy import LateProxy

pytestmark = pytest.mark.real_kafka

LATE_S, APPEND_S = 1.0, APPEND_BOUND_MS / 1000
SLACK_S, TRIES_MAX = 0.7, 6


@pytest_asyncio.fixture
async def tp(kafka: str) -> AsyncIterator[TopicPartition]:
    world = KafkaWorld(kafka)
    await world.start()
    yield await world.topic(1), 0
    await world.close()


@pytest_asyncio.fixture
async def proxy(kafka: str) -> AsyncIterator[LateProxy]:
    async with LateProxy(kafka).serving() as proxy:
        yield proxy


@pytest_asyncio.fixture
async def log(proxy: LateProxy, tp: TopicPartition) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(proxy.address, "late")
    await log.start()
    yield log
    await log.stop()


async def bounded(log: KafkaLog, tp: TopicPartition, value: bytes) -> Appended | None:
    """The answer of an append, within its own bound; None where it is not known."""
    began_s = time.monotonic()
    answer = await log.append(Outgoing(tp[0], value, partition=tp[1]))
    assert time.monotonic() - began_s < APPEND_S + SLACK_S
    assert isinstance(answer, Appended | AppendUnknown)
    return answer if isinstance(answer, Appended) else None


async def until_appended(log: KafkaLog, tp: TopicPartition) -> int:
    """How many appends in a row were not answered before one was: each of another value."""
    for tried in range(TRIES_MAX):
        if await bounded(log, tp, b"try %d" % tried) is not None:
            return tried
    raise AssertionError("it does not go on")


async def values(kafka: str, tp: TopicPartition, end: int) -> list[bytes | None]:
    log = KafkaLog(kafka, "reader")
    await log.start()
    reader = log.reader({tp: 0})
    await reader.start()
    found: list[bytes | None] = []
    async with asyncio.timeout(10):
        while reader.positions()[tp] < end:
            found += [each.value for each in await reader.poll(wait_ms=200)]
    await reader.stop()
    await log.stop()
    return found


async def test_a_writer_that_has_lost_one_append_goes_on(
    kafka: str, proxy: LateProxy, log: KafkaLog, tp: TopicPartition
) -> None:
    assert await bounded(log, tp, b"first") is not None
    proxy.late_s = LATE_S
    assert await bounded(log, tp, b"late") is not None
    proxy.once_s = APPEND_S
    assert await bounded(log, tp, b"lost") is None
    connected = proxy.connected
    tried = await until_appended(log, tp)
    assert tried > 0, "a producer is not opened in the time of one append"
    assert proxy.connected - connected == 2, "one producer was opened, over the bootstrap's connection and its own"
    again = await bounded(log, tp, b"again")
    assert again is not None
    found = await values(kafka, tp, again.offset + 1)
    assert found == [b"first", b"late", b"lost", b"try %d" % tried, b"again"], "what found no producer was never sent"


async def test_a_writer_that_starts_goes_on(proxy: LateProxy, log: KafkaLog, tp: TopicPartition) -> None:
    proxy.late_s = LATE_S
    tried = await until_appended(log, tp)
    for _ in range(TRIES_MAX):
        try:
            record = await log.stands_before(tp, 1)
        except LogUnavailable:
            continue
        assert record is not None
        assert record.value == b"try %d" % tried
        return
    raise AssertionError("it never learns what stands before")


@pytest.mark.parametrize("after_s", [0.1, 1.5, 2.5, 3.5])
async def test_a_stop_leaves_no_connection_of_what_was_being_opened(
    proxy: LateProxy, log: KafkaLog, tp: TopicPartition, after_s: float
) -> None:
    proxy.late_s = LATE_S
    before = asyncio.all_tasks()
    append = asyncio.create_task(log.append(Outgoing(tp[0], b"v", partition=0)))
    look = asyncio.create_task(log.stands_before(tp, 1))
    await asyncio.sleep(after_s)
    await log.stop()
    assert isinstance(await append, AppendUnknown)
    with pytest.raises(LogUnavailable):
        await look
    proxy.late_s = 0.0
    await eventually(lambda: proxy.connections == 0)
    await eventually(lambda: asyncio.all_tasks() <= before)
