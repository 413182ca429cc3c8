"""A record that Kafka's client cannot even read stops neither a reader nor a FastStream subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from fallow.shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT, Outgoing, Record
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on
from tests.kafka.worlds.unreadable import unreadable_batch

pytestmark = pytest.mark.real_kafka

IN_PLACE_OF_IT = ((UNREADABLE_HEADER, UNREADABLE_TEXT),)


async def publish_unreadable(subscription: Subscription, partition: int, values: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=subscription.bootstrap) as producer:
        await unreadable_batch(producer, subscription.topic, partition, values)


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    subscription = await subscription_on(kafka)
    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=n % 2) for n in range(6)))
    await publish_unreadable(subscription, 0, [b"a", b"b", b"c"])
    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=n % 2) for n in range(6, 10)))
    yield subscription
    await subscription.world.close()


def summary(records: list[Record], partition: int) -> list[tuple[int, bytes | None, bool]]:
    """Offset, value, and whether the record stands for an unreadable one."""
    return [(r.offset, r.value, r.headers == IN_PLACE_OF_IT) for r in records if r.partition == partition]


PARTITION_0 = [
    (0, b"0", False),
    (1, b"2", False),
    (2, b"4", False),
    (3, b"a", False),
    (4, None, True),
    (5, None, True),
    (6, b"6", False),
    (7, b"8", False),
]
PARTITION_1 = [(0, b"1", False), (1, b"3", False), (2, b"5", False), (3, b"7", False), (4, b"9", False)]


async def test_a_reader_passes_it_and_says_where_it_was(subscription: Subscription) -> None:
    reader = subscription.log.reader({(subscription.topic, 0): 0, (subscription.topic, 1): 0})
    await reader.start()

    async def has_all() -> bool:
        subscription.seen.extend(await reader.poll())
        return len(subscription.seen) >= 13

    await eventually(has_all)
    assert reader.positions() == {(subscription.topic, 0): 8, (subscription.topic, 1): 5}
    await reader.stop()
    assert summary(subscription.seen, 0) == PARTITION_0
    assert summary(subscription.seen, 1) == PARTITION_1


async def test_a_subscriber_passes_it_and_commits_behind_it(subscription: Subscription) -> None:
    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: 8, 1: 5}))
    assert summary(subscription.seen, 0) == PARTITION_0
    assert summary(subscription.seen, 1) == PARTITION_1


async def test_it_may_be_the_last_record(subscription: Subscription) -> None:
    await publish_unreadable(subscription, 1, [b"x"])
    reader = subscription.log.reader({(subscription.topic, 1): 4})
    await reader.start()

    async def has_all() -> bool:
        subscription.seen.extend(await reader.poll())
        return len(subscription.seen) >= 2

    await eventually(has_all)
    await subscription.publish(Outgoing(subscription.topic, b"next", partition=1))
    subscription.seen.extend(await reader.poll(wait_ms=5_000))
    await reader.stop()
    assert summary(subscription.seen, 1) == [(4, b"9", False), (5, None, True), (6, b"next", False)]


async def test_a_member_of_a_group_on_that_topic_keeps_its_share(subscription: Subscription) -> None:
    """It ended the membership of every process, and all of them looked well."""
    member = subscription.log.member(f"{subscription.topic}-group", subscription.topic)
    await member.start()
    await eventually(lambda: member.owned() == {0, 1})
    for _ in range(3):
        await publish_unreadable(subscription, 0, [b"a", b"b", b"c"])
        await asyncio.sleep(0.5)
    assert member.owned() == {0, 1}
    member.decline(frozenset({0}))
    await eventually(lambda: member.owned() == {1})
    await member.stop()
