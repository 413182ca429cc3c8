"""A batch that a disk has damaged stops its own partition alone, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from fallow.shared.log.inputs import damage as damage_module
from fallow.shared.log.machine.losses import Loss, LossKind
from fallow.shared.log.port import Outgoing, Reader, Record, UnreadableRecords
from fallow.shared.log.sharing.faststream_recipe import make_broker
from fallow.shared.runtime.stack.choose import Choice
from tests.contract.eventually import eventually
from tests.kafka.worlds.damage import Segment, segment_of
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = pytest.mark.real_kafka

WHERE: list[Callable[[Segment, bytes], None]] = [Segment.damage, Segment.lengthen]
PARTITIONS = 3


@pytest_asyncio.fixture
async def subscription(kafka: str) -> AsyncIterator[Subscription]:
    """Each publish is a batch of each partition; partition 0 has `0-0`, `0-1`, `0-2` and `0-3`."""
    subscription = await subscription_on(kafka, partitions=PARTITIONS)
    for number in range(4):
        await publish(subscription, number)
    yield subscription
    await subscription.world.close()


async def publish(subscription: Subscription, number: int) -> None:
    values = ((partition, b"%d-%d is a value" % (partition, number)) for partition in range(PARTITIONS))
    await subscription.publish(*(Outgoing(subscription.topic, value, partition=at) for at, value in values))


def offsets(records: list[Record], partition: int) -> list[int]:
    return [record.offset for record in records if record.partition == partition]


async def drained(reader: Reader, records: list[Record]) -> UnreadableRecords:
    """Read until the reader says that something cannot be read."""
    async with asyncio.timeout(40):
        while True:
            try:
                records += await reader.poll()
            except UnreadableRecords as error:
                return error


async def has_come(reader: Reader, records: list[Record], offset: int) -> bool:
    records += await reader.poll()
    return offset in offsets(records, 0)


@pytest.mark.parametrize("damage", WHERE)
async def test_the_other_partitions_are_handled_and_the_bad_one_is_held_and_told(
    subscription: Subscription, kafka_choice: Choice, damage: Callable[[Segment, bytes], None]
) -> None:
    damage(segment_of(kafka_choice, (subscription.topic, 0)), b"0-1 is a value")
    losses: list[Loss] = []
    broker = make_broker(subscription.bootstrap, "test")
    delivery = subscription.subscribe(broker, subscription.keep, on_loss=losses.append)
    async with broker:
        await broker.start()
        await eventually(lambda: bool(losses), within_s=40)
        await publish(subscription, 4)
        await eventually(lambda: subscription.has_committed({0: 1, 1: 5, 2: 5}))
        assert delivery.held == {(subscription.topic, 0)}
        await asyncio.sleep(1)
    (loss,) = losses
    assert (loss.kind, loss.tp, loss.next_offset) == (LossKind.UNREADABLE, (subscription.topic, 0), 1)
    assert loss.begin in {2, 4} if damage is Segment.damage else loss.begin == loss.end
    assert f"{subscription.topic}/0 cannot be read at offset 1 (" in str(loss)
    assert offsets(subscription.seen, 0) == [0]
    assert offsets(subscription.seen, 1) == offsets(subscription.seen, 2) == [0, 1, 2, 3, 4]


async def test_it_is_read_on_without_a_gap_once_the_batch_is_whole_again(
    subscription: Subscription, kafka_choice: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage_module, "LOOK_AGAIN_S", 0.5)
    segment = segment_of(kafka_choice, (subscription.topic, 0))
    segment.damage(b"0-1 is a value")
    losses: list[Loss] = []
    broker = make_broker(subscription.bootstrap, "test")
    delivery = subscription.subscribe(broker, subscription.keep, on_loss=losses.append)
    async with broker:
        await broker.start()
        await eventually(lambda: bool(losses), within_s=20)
        await asyncio.sleep(3)  # it is looked at meanwhile, and stays held
        assert (set(delivery.held), len(losses)) == ({(subscription.topic, 0)}, 1)
        segment.repair()
        await eventually(lambda: subscription.has_committed({0: 4, 1: 4, 2: 4}), within_s=20)
        assert delivery.held == frozenset()
    assert offsets(subscription.seen, 0) == [0, 1, 2, 3]


async def test_what_a_moment_has_spoiled_holds_nothing(subscription: Subscription, kafka_choice: Choice) -> None:
    segment = segment_of(kafka_choice, (subscription.topic, 0))
    segment.damage(b"0-1 is a value")
    losses: list[Loss] = []
    broker = make_broker(subscription.bootstrap, "test")
    subscription.subscribe(broker, subscription.keep, on_loss=losses.append)
    async with broker:
        await broker.start()
        await eventually(lambda: offsets(subscription.seen, 0) == [0])
        segment.repair()
        await eventually(lambda: subscription.has_committed({0: 4, 1: 4, 2: 4}), within_s=20)
    assert losses == []


@pytest.mark.parametrize("damage", WHERE)
async def test_a_reader_gives_all_that_can_be_read_and_says_where_and_how_far_it_cannot(
    subscription: Subscription, kafka_choice: Choice, damage: Callable[[Segment, bytes], None]
) -> None:
    damage(segment_of(kafka_choice, (subscription.topic, 0)), b"0-2 is a value")
    tp = (subscription.topic, 0)
    reader, records = subscription.log.reader({tp: 0, (subscription.topic, 1): 0}), list[Record]()
    await reader.start()
    error = await drained(reader, records)
    assert (offsets(records, 0), offsets(records, 1)) == ([0, 1], [0, 1, 2, 3])
    assert (error.tp, error.asked, error.end) == (tp, 2, 4)
    assert reader.positions()[tp] == 2
    assert error.begin == (3 if damage is Segment.damage else 4)
    if damage is Segment.damage:  # else the broker finds nothing behind it
        again = await drained(reader, records)
        assert (again.asked, len(records)) == (2, 6)
        reader.seek(tp, error.begin)
        await publish(subscription, 4)
        await eventually(lambda: has_come(reader, records, 4))
        assert offsets(records, 0) == [0, 1, 3, 4]
    await reader.stop()


async def test_a_look_at_it_is_answered(subscription: Subscription, kafka_choice: Choice) -> None:
    """A reader that compares several partitions learns of the others."""
    segment_of(kafka_choice, (subscription.topic, 0)).damage(b"0-1 is a value")
    bad, good = (subscription.topic, 0), (subscription.topic, 1)
    before = await subscription.log.last_before({bad: 2, good: 2})
    assert (bad in before, before[good].offset) == (False, 1)
    first = await subscription.log.first_from({bad: 1, good: 1})
    assert {tp: record.offset for tp, record in first.items()} == {bad: 1, good: 1}
    assert (await subscription.log.last_before({bad: 4}))[bad].offset == 3
    stand = [await subscription.log.stands_before(bad, offset) for offset in (2, 4)]
    assert [record and record.offset for record in stand] == [None, 3]
