"""A commit beyond the end of its topic never means "from the beginning": what was handled is not handled again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition

from fallow.shared.log.machine.losses import Loss, LossKind
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = pytest.mark.real_kafka


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    subscription = await subscription_on(kafka, partitions=1)
    yield subscription
    await subscription.world.close()


async def handle(subscription: Subscription, upto: int) -> None:
    """Run a subscriber until it has committed so many."""
    broker = make_broker(subscription.bootstrap, "first")
    subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: upto}))


async def commit(subscription: Subscription, offset: int) -> None:
    """Kafka forgets what was committed of a topic that is deleted; of one that loses its tail it remembers it."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=subscription.bootstrap,
        group_id=subscription.group,
        enable_auto_commit=False,
    )
    tp = TopicPartition(subscription.topic, 0)
    consumer.assign([tp])
    await consumer.start()
    await consumer.commit({tp: offset})
    await consumer.stop()


async def test_a_topic_that_ends_before_the_commit_is_not_read_from_its_beginning(subscription: Subscription) -> None:
    await subscription.publish_values(*(b"old %d" % n for n in range(20)))
    await handle(subscription, 20)
    await subscription.world.refill(subscription.topic)
    await subscription.publish_values(*(b"new %d" % n for n in range(8)))
    await commit(subscription, 20)
    subscription.seen.clear()
    losses: list[Loss] = []
    broker = make_broker(subscription.bootstrap, "second")
    subscription.subscribe(broker, subscription.keep, on_loss=losses.append)
    async with broker:
        await broker.start()
        await eventually(lambda: bool(losses))
        await subscription.publish_values(b"behind")
    (loss,) = losses
    assert (loss.kind, loss.next_offset, loss.end) == (LossKind.BEYOND_END, 20, 8)
    assert subscription.values() == []
    assert await subscription.committed() == {0: 20}


async def test_what_was_deleted_unread_is_told_and_reading_goes_on(subscription: Subscription) -> None:
    await subscription.publish_values(b"a", b"b")
    await handle(subscription, 2)
    await subscription.publish_values(b"c", b"d", b"e")
    await subscription.world.delete_before((subscription.topic, 0), 4)
    subscription.seen.clear()
    losses: list[Loss] = []
    broker = make_broker(subscription.bootstrap, "second")
    subscription.subscribe(broker, subscription.keep, on_loss=losses.append)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: 5}))
    assert subscription.values() == [b"e"]
    assert [(loss.kind, loss.next_offset, loss.begin) for loss in losses] == [(LossKind.DELETED_UNREAD, 2, 4)]
