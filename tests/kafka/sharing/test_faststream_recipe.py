"""The subscriber recipe on a real Kafka: nothing is lost, nothing is hot, and only what was handled is committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.port import Outgoing, Record
from fallow.shared.log.sharing.delivery import RetryPolicy
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = pytest.mark.real_kafka


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    subscription = await subscription_on(kafka)
    yield subscription
    await subscription.world.close()


async def test_what_was_there_before_is_handled_and_committed_exactly(subscription: Subscription) -> None:
    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=n % 2) for n in range(5)))
    broker = make_broker(subscription.bootstrap, "test")
    delivery = subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: 3, 1: 2}))
    assert sorted(subscription.values()) == [b"0", b"1", b"2", b"3", b"4"]  # type: ignore[type-var]
    assert (delivery.records, delivery.retries, delivery.batches_taken_away) == (5, 0, 0)


async def test_hostile_headers_and_values_harm_nobody(subscription: Subscription) -> None:
    odd = (("bad", b"\xff\xfe"), ("reply_to", subscription.topic.encode()), ("content-type", b"\x00"))
    await subscription.publish(
        Outgoing(subscription.topic, b"\xff{", partition=0, headers=odd),
        Outgoing(subscription.topic, None, key=b"k", partition=0),
        Outgoing(subscription.topic, b"fine", partition=0),
    )
    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: 3}))
    assert subscription.values() == [b"\xff{", None, b"fine"]
    assert subscription.seen[0].headers == odd


async def test_a_failing_batch_is_tried_again_in_place_until_it_succeeds(subscription: Subscription) -> None:
    attempts: list[float] = []

    async def fail_three_times(records: list[Record]) -> None:
        attempts.append(time.monotonic())
        if len(attempts) <= 3:
            raise ConnectionError("not now")
        await subscription.keep(records)

    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=0) for n in range(3)))
    broker = make_broker(subscription.bootstrap, "test")
    delivery = subscription.subscribe(broker, fail_three_times)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({0: 3}))
    assert subscription.values() == [b"0", b"1", b"2"]
    assert delivery.retries == 3
    assert attempts[3] - attempts[0] > 0.3


async def test_a_batch_that_never_succeeds_ends_the_subscription_uncommitted(subscription: Subscription) -> None:
    async def fail(_records: list[Record]) -> None:
        raise ConnectionError("never")

    await subscription.publish(Outgoing(subscription.topic, b"v", partition=0))
    broker = make_broker(subscription.bootstrap, "test")
    policy = RetryPolicy(wait_ms_min=20, wait_ms_max=100, give_up_after_ms=500)
    delivery = subscription.subscribe(broker, fail, retry=policy)
    async with broker:
        await broker.start()
        async with asyncio.timeout(10):
            reason = await delivery.given_up()
    assert f"{subscription.topic}/0/0: ConnectionError('never')" in str(reason)
    assert 3 < delivery.retries < 30
    assert await subscription.committed() == {}


async def test_a_rebalance_in_the_middle_of_a_batch_loses_nothing(subscription: Subscription) -> None:
    entered, may_go_on = asyncio.Event(), asyncio.Event()
    pairs = 0

    async def publish_pair() -> None:
        nonlocal pairs
        pairs += 1
        await subscription.publish(*(Outgoing(subscription.topic, b"%d/%d" % (n, pairs), partition=n) for n in (0, 1)))

    async def slowly(records: list[Record]) -> None:
        if not entered.is_set():
            if {record.partition for record in records} != {0, 1}:
                # A fetch may hold one partition only, and that one may stay here: nothing would be taken away.
                await publish_pair()
                await subscription.keep(records)
                return
            entered.set()
        await may_go_on.wait()
        await subscription.keep(records)

    seen_by_second: list[Record] = []

    async def keep_apart(records: list[Record]) -> None:
        seen_by_second.extend(records)

    for _ in range(5):
        await publish_pair()
    first = make_broker(subscription.bootstrap, "first")
    delivery = subscription.subscribe(first, slowly)
    second = make_broker(subscription.bootstrap, "second")
    subscription.subscribe(second, keep_apart)
    async with first, second:
        await first.start()
        async with asyncio.timeout(15):
            await entered.wait()
        await second.start()
        await eventually(lambda: bool(seen_by_second))
        may_go_on.set()
        await eventually(lambda: subscription.has_committed({0: pairs, 1: pairs}))
    values = {*subscription.values(), *(record.value for record in seen_by_second)}
    assert values == {b"%d/%d" % (n, pair) for n in (0, 1) for pair in range(1, pairs + 1)}
    assert delivery.batches_taken_away >= 1


async def test_a_process_that_cannot_handle_its_batch_leaves_it_to_another_when_it_stops(
    subscription: Subscription,
) -> None:
    async def fail(_records: list[Record]) -> None:
        raise ConnectionError("not here")

    await subscription.publish(*(Outgoing(subscription.topic, b"%d" % n, partition=0) for n in range(3)))
    ailing, healthy = make_broker(subscription.bootstrap, "a"), make_broker(subscription.bootstrap, "b")
    failing = subscription.subscribe(ailing, fail)
    subscription.subscribe(healthy, subscription.keep)
    async with healthy:
        async with ailing:
            await ailing.start()
            await eventually(lambda: failing.retries > 0)
            began = time.monotonic()
        assert time.monotonic() - began < 8
        await healthy.start()
        await eventually(lambda: subscription.has_committed({0: 3}))
    assert (failing.batches, failing.batches_left) == (0, 1)
    assert subscription.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("wrong", [{"wait_ms_min": 0}, {"wait_ms_min": 9_000}, {"give_up_after_ms": 900_000}])
def test_a_retry_policy_that_is_hot_or_endless_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be 10 <="):
        RetryPolicy(**wrong)


async def test_commits_name_only_the_partitions_of_the_batch(subscription: Subscription) -> None:
    await subscription.publish(Outgoing(subscription.topic, b"v", partition=1))
    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, subscription.keep)
    async with broker:
        await broker.start()
        await eventually(lambda: subscription.has_committed({1: 1}))
    assert await subscription.committed() == {1: 1}
