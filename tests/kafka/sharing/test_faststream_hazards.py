"""What FastStream 0.7 does by default, on a real Kafka: the reasons for each line of our subscriber recipe.

When one of these fails after an upgrade, a hazard may be gone: read `shared/log/sharing/faststream_recipe.py` again.
"""

# No `from __future__ import annotations`: FastStream reads the annotations of nested handlers when the program runs.

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation
from faststream import AckPolicy
from faststream.exceptions import StopApplication
from faststream.kafka import KafkaBroker, KafkaPublishMessage
from faststream.kafka.annotations import KafkaMessage
from pydantic import BaseModel, ConfigDict

from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.port import Outgoing
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = [pytest.mark.real_kafka, pytest.mark.filterwarnings("ignore:AckPolicy.REJECT_ON_ERROR:UserWarning")]


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    subscription = await subscription_on(kafka)
    yield subscription
    await subscription.world.close()


def plain_broker(subscription: Subscription) -> KafkaBroker:
    """FastStream as it comes, but it makes no topics and logs nothing."""
    return KafkaBroker(
        subscription.bootstrap, allow_auto_create_topics=False, graceful_timeout=1, log_level=logging.DEBUG
    )


@pytest.mark.parametrize("policy", [None, AckPolicy.ACK_FIRST, AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR])
async def test_these_policies_lose_the_message_whose_handler_fails(
    subscription: Subscription, policy: AckPolicy | None
) -> None:
    """None is the default."""
    await subscription.publish_values(b"1", b"2", b"3")
    broker = plain_broker(subscription)
    chosen = {} if policy is None else {"ack_policy": policy}
    handled: list[bytes] = []

    @broker.subscriber(subscription.topic, group_id=subscription.group, auto_offset_reset="earliest", **chosen)  # type: ignore[call-overload]
    async def handle(message: KafkaMessage) -> None:
        handled.append(message.body)
        if message.body == b"2":
            raise ConnectionError("Redis is away")

    async with broker:
        await broker.start()
        await eventually(lambda: handled == [b"1", b"2", b"3"])
    assert await subscription.has_reached(3)


async def test_in_a_batch_the_policy_ack_loses_all_of_it(subscription: Subscription) -> None:
    await subscription.publish_values(b"1", b"2", b"3")
    broker = plain_broker(subscription)

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        batch=True,
        ack_policy=AckPolicy.ACK,
    )
    async def handle(_body: list[bytes]) -> None:
        raise ConnectionError("Redis is away")

    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_reached(3))
    assert await subscription.has_reached(3)


async def test_nack_repeats_at_once_and_without_end(subscription: Subscription) -> None:
    await subscription.publish_values(b"1", b"2")
    broker = plain_broker(subscription)
    handled: list[bytes] = []

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def handle(message: KafkaMessage) -> None:
        handled.append(message.body)
        raise ConnectionError("Redis is away")

    async with broker:
        await broker.start()
        await eventually(lambda: len(handled) > 0)
        before = len(handled)
        await asyncio.sleep(1)
        repeated = len(handled) - before
    assert repeated > 100
    assert set(handled) == {b"1"}


async def test_what_is_not_json_repeats_for_ever_under_nack(subscription: Subscription) -> None:
    await subscription.publish(
        Outgoing(subscription.topic, b"{", headers=(("content-type", b"application/json"),), partition=0)
    )
    await subscription.publish_values(b"{}")
    broker = plain_broker(subscription)
    handled: list[object] = []

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def handle(body: dict[str, str]) -> None:
        handled.append(body)

    async with broker:
        await broker.start()
        await asyncio.sleep(1.5)
    assert handled == []
    assert await subscription.committed() == {}


async def test_a_message_that_no_filter_takes_repeats_for_ever_under_nack(subscription: Subscription) -> None:
    await subscription.publish_values(b"other", b"wanted")
    broker = plain_broker(subscription)
    handled: list[bytes] = []
    subscriber = broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )

    @subscriber(filter=lambda message: message.body == b"wanted")
    async def handle(message: KafkaMessage) -> None:
        handled.append(message.body)

    async with broker:
        await broker.start()
        await asyncio.sleep(1.5)
    assert handled == []


async def publish_with_headers(subscription: Subscription, headers: list[tuple[str, bytes | None]]) -> None:
    """As any other client may: our own log has no null headers."""
    async with AIOKafkaProducer(bootstrap_servers=subscription.bootstrap) as producer:
        await producer.send_and_wait(subscription.topic, b"odd", partition=0, headers=headers)


@pytest.mark.parametrize("value", [None, b"\xff\xfe"], ids=["null", "not-utf-8"])
async def test_one_odd_header_drops_the_whole_batch_by_default(subscription: Subscription, value: bytes | None) -> None:
    await subscription.publish_values(b"1", b"2")
    await publish_with_headers(subscription, [("h", value)])
    await subscription.publish_values(b"3")
    broker = plain_broker(subscription)
    handled: list[bytes] = []

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        batch=True,
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def handle(message: KafkaMessage) -> None:
        handled.extend(record.value for record in message.raw_message)

    async with broker:
        await broker.start()
        await asyncio.sleep(1)
        await subscription.publish_values(b"4")
        await eventually(lambda: subscription.has_reached(5))
    assert handled == [b"4"]


@pytest.mark.parametrize("value", [None, b"\xff\xfe"], ids=["null", "not-utf-8"])
async def test_one_odd_header_harms_nobody_with_our_recipe(subscription: Subscription, value: bytes | None) -> None:
    await subscription.publish_values(b"1", b"2")
    await publish_with_headers(subscription, [("h", value)])
    await subscription.publish_values(b"3")
    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_reached(4))
    assert subscription.values() == [b"1", b"2", b"odd", b"3"]
    assert subscription.seen[2].headers == (("h", value or b""),)


@pytest.mark.parametrize(("no_reply", "replies"), [(False, 1), (True, 0)])
async def test_a_sender_chooses_where_a_return_value_goes_unless_there_is_no_reply(
    subscription: Subscription, no_reply: bool, replies: int
) -> None:
    chosen_by_sender = await subscription.world.topic(1)
    broker = plain_broker(subscription)
    handled: list[bytes] = []

    @broker.subscriber(subscription.topic, group_id=subscription.group, auto_offset_reset="earliest", no_reply=no_reply)
    async def handle(message: KafkaMessage) -> str:
        handled.append(message.body)
        return "a secret"

    await subscription.publish(
        Outgoing(subscription.topic, b"1", headers=(("reply_to", chosen_by_sender.encode()),), partition=0)
    )
    async with broker:
        await broker.start()
        await eventually(lambda: handled == [b"1"])
    assert await subscription.log.end_offsets([(chosen_by_sender, 0)]) == {(chosen_by_sender, 0): replies}


class StrictCommand(BaseModel):
    model_config = ConfigDict(strict=True)
    id: UUID
    at: datetime


COMMAND = b'{"id": "00000000-0000-4000-8000-000000000001", "at": "2026-01-01T00:00:00Z"}'


async def test_strict_models_refuse_good_json_when_the_framework_parses_it(subscription: Subscription) -> None:
    await subscription.publish(
        Outgoing(subscription.topic, COMMAND, headers=(("content-type", b"application/json"),), partition=0)
    )
    broker = plain_broker(subscription)
    handled: list[StrictCommand] = []

    @broker.subscriber(
        subscription.topic, group_id=subscription.group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
    )
    async def handle(body: StrictCommand) -> None:
        handled.append(body)

    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_reached(1))
    assert handled == []
    assert StrictCommand.model_validate_json(COMMAND).at.year == 2026


async def test_a_batch_of_messages_is_published_to_one_partition_whatever_their_keys(
    subscription: Subscription,
) -> None:
    keys = [b"a", b"b", b"c", b"d", b"e", b"f"]
    broker = plain_broker(subscription)
    async with broker:
        publish_all = broker.publish_batch
        await publish_all(*(KafkaPublishMessage(b"v", key=key) for key in keys), topic=subscription.topic)
    reader = subscription.log.reader({(subscription.topic, 0): 0, (subscription.topic, 1): 0})
    await reader.start()
    found = []
    for _ in range(10):
        found.extend(await reader.poll(wait_ms=100))
    await reader.stop()
    assert sorted(record.key or b"" for record in found) == keys
    assert len({record.partition for record in found}) == 1
    assert len({partition_of(key, 2) for key in keys}) == 2


async def test_ack_commits_what_other_batches_have_not_finished(subscription: Subscription) -> None:
    broker = plain_broker(subscription)
    handled: list[list[bytes]] = []

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        batch=True,
        ack_policy=AckPolicy.MANUAL,
    )
    async def handle(message: KafkaMessage) -> None:
        handled.append([record.value for record in message.raw_message])
        if len(handled) == 2:
            await message.ack()

    async with broker:
        await broker.start()
        await subscription.publish(Outgoing(subscription.topic, b"unfinished", partition=0))
        await eventually(lambda: len(handled) == 1)
        await subscription.publish(Outgoing(subscription.topic, b"finished", partition=1))
        await eventually(lambda: len(handled) == 2)
    assert handled == [[b"unfinished"], [b"finished"]]
    assert await subscription.committed() == {0: 1, 1: 1}


async def test_a_batch_may_hold_several_partitions(subscription: Subscription) -> None:
    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=n % 2) for n in range(20)))
    broker = plain_broker(subscription)
    batches: list[set[int]] = []

    @broker.subscriber(subscription.topic, group_id=subscription.group, auto_offset_reset="earliest", batch=True)
    async def handle(message: KafkaMessage) -> None:
        batches.append({record.partition for record in message.raw_message})

    async with broker:
        await broker.start()
        await eventually(lambda: len(batches) > 0)
    assert {0, 1} in batches


async def test_a_failed_commit_is_only_logged(subscription: Subscription, caplog: pytest.LogCaptureFixture) -> None:
    """Without a group there is nothing to commit to; the handler never learns."""
    broker = KafkaBroker(
        subscription.bootstrap, allow_auto_create_topics=False, logger=logging.getLogger("of-this-test")
    )
    handled: list[bytes] = []

    @broker.subscriber(subscription.topic, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    async def handle(message: KafkaMessage) -> None:
        handled.append(message.body)

    await subscription.publish_values(b"1", b"2")
    with caplog.at_level(logging.CRITICAL, logger="of-this-test"):
        async with broker:
            await broker.start()
            await eventually(lambda: handled == [b"1", b"2"])
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [IllegalOperation, IllegalOperation]


async def test_a_new_group_misses_what_was_there_before_by_default(subscription: Subscription) -> None:
    await subscription.publish_values(b"before")
    broker = plain_broker(subscription)
    handled: list[bytes] = []

    @broker.subscriber(subscription.topic, group_id=subscription.group, batch=True)
    async def handle(message: KafkaMessage) -> None:
        handled.extend(record.value for record in message.raw_message)

    async def sees_something() -> bool:
        await subscription.publish_values(b"after")
        return bool(handled)

    async with broker:
        await broker.start()
        await eventually(sees_something)
    assert set(handled) == {b"after"}


async def test_several_workers_of_the_default_policy_lose_the_order(subscription: Subscription) -> None:
    await subscription.publish_values(b"300", b"150", b"0")
    broker = plain_broker(subscription)
    finished: list[bytes] = []

    @broker.subscriber(subscription.topic, group_id=subscription.group, auto_offset_reset="earliest", max_workers=3)
    async def handle(message: KafkaMessage) -> None:
        await asyncio.sleep(int(message.body) / 1000)
        finished.append(message.body)

    async with broker:
        await broker.start()
        await eventually(lambda: len(finished) == 3)
    assert finished == [b"0", b"150", b"300"]


async def test_stopping_the_application_from_a_handler_commits_nothing(subscription: Subscription) -> None:
    await subscription.publish_values(b"1")
    broker = plain_broker(subscription)
    handled: list[bytes] = []

    @broker.subscriber(
        subscription.topic,
        group_id=subscription.group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def handle(message: KafkaMessage) -> None:
        handled.append(message.body)
        raise StopApplication

    async with broker:
        await broker.start()
        await eventually(lambda: bool(handled))
        await asyncio.sleep(0.5)
    assert handled == [b"1"]
    assert await subscription.committed() == {}


async def test_a_transactional_id_is_accepted_but_no_transaction_is_ever_begun(subscription: Subscription) -> None:
    broker = KafkaBroker(
        subscription.bootstrap, allow_auto_create_topics=False, transactional_id=f"id-{subscription.topic}"
    )
    async with broker:
        with pytest.raises(IllegalOperation, match="not in transaction"):
            await broker.publish(b"v", subscription.topic)
