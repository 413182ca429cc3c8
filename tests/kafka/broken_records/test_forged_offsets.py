"""A client that gives its records offsets of its own moves no reader's place in the log."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from fallow.shared.log.port import Outgoing
from tests.kafka.worlds.subscription import Subscription, subscription_on
from tests.log.worlds.raw_batches import Raw, raw_batch

pytestmark = pytest.mark.real_kafka

FORGED = (1_000_000, -5, 0, 7)


async def send_raw(subscription: Subscription, raw: bytearray) -> None:
    """One batch, as its bytes are."""
    async with AIOKafkaProducer(bootstrap_servers=subscription.bootstrap) as producer:
        batch = producer.create_batch()
        assert batch.append(timestamp=None, key=None, value=b"in the place of the raw ones")
        batch._builder = Raw(batch._builder, raw)
        await (await producer.send_batch(batch, subscription.topic, partition=0))


async def test_records_with_forged_offsets_are_read_where_they_stand_and_so_is_what_follows(kafka: str) -> None:
    subscription = await subscription_on(kafka)
    tp = (subscription.topic, 0)
    await subscription.publish(Outgoing(subscription.topic, b"before", partition=0))
    await send_raw(subscription, raw_batch([b"a", b"b", b"c", b"d"], FORGED))
    await subscription.publish(Outgoing(subscription.topic, b"behind", partition=0))
    reader = subscription.log.reader({tp: 0})
    await reader.start()
    found: list[tuple[int, bytes | None]] = []
    async with asyncio.timeout(20):
        while len(found) < 6:
            found += [(record.offset, record.value) for record in await reader.poll(wait_ms=200)]
    assert found == list(enumerate([b"before", b"a", b"b", b"c", b"d", b"behind"]))
    assert reader.positions() == {tp: 6}
    await reader.stop()
    await subscription.world.close()
