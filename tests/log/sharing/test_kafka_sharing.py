"""What FastStream takes for its consumer: an error that no other try mends ends the delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiokafka import TopicPartition as KafkaTopicPartition

from fallow.shared.log.kafka.groups.sharing import KafkaShare, SharingConsumer
from fallow.shared.log.machine.losses import Place
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Record, TopicPartition
from fallow.shared.log.sharing.delivery import Delivery


class BrokenLog(MemoryLog):
    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        raise AttributeError("no consumer")


class OneShare(SharingConsumer):
    """Has one partition, without any Kafka."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        delivery.join(self)

    generation = 1

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset({("t", 0)})

    async def committed(self, *_: object) -> dict[TopicPartition, Place]:
        return {("t", 0): Place(1, 7)}


async def test_an_error_that_is_none_of_kafkas_ends_the_delivery_and_is_no_hot_loop() -> None:
    broker = MemoryBroker()
    broker.create_topic("t", 1)
    for _ in range(3):
        broker.write_marker(("t", 0))

    async def handle(_: list[Record]) -> None:
        raise AssertionError("nothing was read")

    delivery = Delivery(handle, BrokenLog(broker))
    consumer = OneShare(delivery)
    with pytest.raises(AttributeError):
        await consumer.getmany()
    reason = await asyncio.wait_for(delivery.given_up(), 1)
    assert "no consumer" in str(reason)


class Committing(SharingConsumer):
    """Has topic "t" alone, and keeps what is committed."""

    def __init__(self) -> None:
        self.said: list[dict[KafkaTopicPartition, tuple[int, str]]] = []

    def is_there(self, topic: str) -> bool:
        return topic == "t"

    async def commit(self, offsets: dict[KafkaTopicPartition, tuple[int, str]]) -> None:
        self.said.append(offsets)


async def test_nothing_is_committed_of_a_topic_that_is_known_to_be_gone() -> None:
    """One of that name that is made meanwhile would begin with the place of the old one."""
    consumer = Committing()
    share = KafkaShare(consumer)
    await share.commit({("gone", 0): Place(1), ("t", 0): Place(2)})
    await share.commit({("gone", 0): Place(1)})
    assert consumer.said == [{KafkaTopicPartition("t", 0): (2, "")}]
