"""A topic in which thousands of records wait keeps no record of another topic waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from fallow.shared.log.kafka.groups.sharing import BATCH_BYTES_MAX
from fallow.shared.log.port import Outgoing, Record, bytes_of
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = pytest.mark.real_kafka

FLOOD = 20_000


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    subscription = await subscription_on(kafka)
    yield subscription
    await subscription.world.close()


async def test_a_flood_of_one_topic_is_passed_by_a_record_of_another(subscription: Subscription) -> None:
    quiet = await subscription.world.topic(2)
    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=n % 2) for n in range(FLOOD)))
    counts: dict[str, int] = {subscription.topic: 0, quiet: 0}
    ahead: list[int] = []
    seen: dict[tuple[str, int], list[int]] = {}

    async def slowly(records: list[Record]) -> None:
        if not ahead and any(record.topic == quiet for record in records):
            ahead.append(counts[subscription.topic])
        for record in records:
            counts[record.topic] += 1
            seen.setdefault((record.topic, record.partition), []).append(record.offset)
        await asyncio.sleep(0.05)

    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, slowly, topics=[subscription.topic, quiet], max_records=500)
    async with broker:
        await broker.start()
        await eventually(lambda: asyncio.sleep(0, counts[subscription.topic] >= 2_000))
        begun = counts[subscription.topic]
        await subscription.publish(Outgoing(quiet, b"here", partition=1))
        await eventually(lambda: asyncio.sleep(0, counts[subscription.topic] >= FLOOD))
    assert counts == {subscription.topic: FLOOD, quiet: 1}
    assert {name: offsets == list(range(len(offsets))) for name, offsets in seen.items()} == dict.fromkeys(seen, True)
    assert ahead[0] - begun < FLOOD // 4


async def test_a_batch_is_bounded_in_bytes_however_well_it_was_compressed(subscription: Subscription) -> None:
    """60 records of 500 kB in one fetch are 30 MB to be handled before anything else is read."""
    quiet = await subscription.world.topic(1)
    producer = AIOKafkaProducer(bootstrap_servers=subscription.bootstrap, compression_type="gzip", linger_ms=50)
    async with producer:
        sent = [await producer.send(subscription.topic, b"a" * 500_000, partition=0) for _ in range(60)]
        await asyncio.gather(*sent)
    sizes: list[int] = []
    before: list[int] = []
    count = 0

    async def slowly(records: list[Record]) -> None:
        nonlocal count
        sizes.append(sum(map(bytes_of, records)))
        if any(record.topic == quiet for record in records):
            before.append(count)
        count += len(records)
        await asyncio.sleep(0.05)

    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, slowly, topics=[subscription.topic, quiet], max_records=500)
    async with broker:
        await broker.start()
        await eventually(lambda: asyncio.sleep(0, count > 0))
        await subscription.publish(Outgoing(quiet, b"here", partition=0))
        await eventually(lambda: asyncio.sleep(0, count == 61))
    assert max(sizes) <= BATCH_BYTES_MAX + 500_000
    assert before[0] < 30


async def test_each_of_two_that_share_a_topic_knows_what_is_its_own(subscription: Subscription) -> None:
    both = [make_broker(subscription.bootstrap, f"test-{number}") for number in range(2)]
    first, second = (subscription.subscribe(broker, subscription.keep) for broker in both)
    whole = frozenset((subscription.topic, number) for number in range(2))
    async with both[0]:
        await both[0].start()
        await eventually(lambda: asyncio.sleep(0, first.assigned == whole))
        async with both[1]:
            await both[1].start()
            await eventually(lambda: asyncio.sleep(0, len(first.assigned) == len(second.assigned) == 1))
            assert first.assigned | second.assigned == whole
        await eventually(lambda: asyncio.sleep(0, first.assigned == whole))
