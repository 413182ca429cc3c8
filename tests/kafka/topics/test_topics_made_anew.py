"""A topic of a group that is deleted and made anew while its members go on is read, or shared, again, soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fallow.shared.log.kafka.groups.group_timers import METADATA_AGE_MS
from fallow.shared.log.port import Outgoing, Record
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.worlds.subscription import Subscription, subscription_on

pytestmark = pytest.mark.real_kafka


class Reading:
    """A subscription to a topic that is deleted, and to one that stays."""

    def __init__(self, own: Subscription, stays: str) -> None:
        self.own, self.stays = own, stays
        self._broker = make_broker(own.bootstrap, "anew")
        self.delivery = own.subscribe(self._broker, self._handle, topics=[stays, own.topic])
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Run when b"old" is handled, before its batch counts as such."""

    async def _handle(self, records: list[Record]) -> None:
        await self.own.keep(records)
        if self.before_end is not None and b"old" in [record.value for record in records]:
            await self.before_end()

    async def begin(self) -> None:
        await self._broker.start()
        await self.publish(self.stays, b"common")
        await self.publish(self.own.topic, b"old")
        await self.has_read(b"common", b"old")

    async def publish(self, topic: str, value: bytes, partition: int = 0) -> None:
        await self.own.publish(Outgoing(topic, value, partition=partition))

    async def has_read(self, *values: bytes, within_s: float = 20) -> None:
        await eventually(lambda: set(values) <= set(self.own.values()), within_s)

    async def delete(self) -> None:
        await self.own.world.delete(self.own.topic)

        async def is_gone() -> bool:
            return await self.own.log.partitions(self.own.topic) == 0

        await eventually(is_gone, 20)

    async def leaves_it_out(self) -> None:
        """One that is made anew before the group has seen that it is gone is a topic that has lost its records."""
        await eventually(lambda: self.delivery.assigned == {(self.stays, 0)}, 1.5 * METADATA_AGE_MS / 1_000)

    async def make_anew(self) -> None:
        """It is read within METADATA_AGE_MS; the rest is for a machine that is busy with other tests."""
        await self.own.world.make(self.own.topic, 2)
        await self.publish(self.own.topic, b"new")
        await self.publish(self.own.topic, b"beside", partition=1)
        await self.has_read(b"new", b"beside", within_s=3 * METADATA_AGE_MS / 1_000)

    async def end(self) -> None:
        await self._broker.stop()
        await self.own.world.close()


async def reading(kafka: str) -> Reading:
    own = await subscription_on(kafka)
    return Reading(own, await own.world.topic(1))


async def test_a_topic_that_was_deleted_and_made_anew_is_read_though_nobody_joins_anew(kafka: str) -> None:
    group = await reading(kafka)
    await group.begin()
    await group.delete()
    await group.publish(group.stays, b"meanwhile")
    await group.has_read(b"meanwhile")
    await group.leaves_it_out()
    await group.make_anew()
    await group.end()


async def test_what_was_handled_and_not_committed_of_a_topic_that_is_gone_holds_nothing_up(kafka: str) -> None:
    """The group neither waits for the topic, nor takes what it had committed for a place in the next one."""
    group, is_gone = await reading(kafka), asyncio.Event()
    own_places = [(group.own.topic, 0), (group.own.topic, 1)]

    async def delete() -> None:
        for tp in own_places:
            group.delivery.share.hold(tp)  # a fetch would tell the group before the batch is committed
        await asyncio.sleep(0.2)  # one that is under way comes back
        await group.delete()
        is_gone.set()

    group.before_end = delete
    await group.begin()
    await is_gone.wait()
    for tp in own_places:
        group.delivery.share.release(tp, 0)
    await group.leaves_it_out()
    await group.publish(group.stays, b"meanwhile")
    await group.has_read(b"meanwhile")
    await group.make_anew()
    await group.end()


async def test_members_share_what_a_topic_had_while_it_is_away_and_what_it_has_as_soon_as_it_is_back(
    kafka: str,
) -> None:
    own = await subscription_on(kafka)
    members = [(await own.world.log()).member(own.group, own.topic) for _ in range(2)]
    for member in members:
        await member.start()
    await eventually(lambda: [len(member.owned()) for member in members] == [1, 1], 20)
    await own.world.delete(own.topic)
    await asyncio.sleep(1.5 * METADATA_AGE_MS / 1_000)
    assert await own.log.partitions(own.topic) == 0
    await eventually(lambda: [len(member.owned()) for member in members] == [1, 1], 2)
    await members[0].stop()
    await eventually(lambda: members[1].owned() == {0, 1}, 10)
    await own.world.make(own.topic, 3)
    await eventually(lambda: members[1].owned() == {0, 1, 2}, 1.5 * METADATA_AGE_MS / 1_000)
    await members[1].stop()
    await own.world.close()
