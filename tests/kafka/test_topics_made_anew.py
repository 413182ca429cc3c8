"""A topic of a group that is deleted and made anew while its members go on is read, or shared, again, soon."""

from __future__ import annotations

import asyncio

import pytest

from fallow.shared.log.kafka.group_timers import METADATA_AGE_MS
from fallow.shared.log.port import Outgoing
from fallow.shared.log.sharing.faststream_recipe import make_broker
from tests.contract.eventually import eventually
from tests.kafka.subscription import subscription_on

pytestmark = pytest.mark.real_kafka


async def test_a_topic_that_was_deleted_and_made_anew_is_read_though_nobody_joins_anew(kafka: str) -> None:
    own = await subscription_on(kafka)
    common = await own.world.topic(1)
    broker = make_broker(kafka, "anew")
    own.subscribe(broker, own.keep, topics=[common, own.topic])
    await broker.start()
    await own.publish(Outgoing(common, b"common", partition=0), Outgoing(own.topic, b"old", partition=0))
    await eventually(lambda: {b"common", b"old"} <= set(own.values()), 20)
    await own.world.delete(own.topic)

    async def is_gone() -> bool:
        return await own.log.partitions(own.topic) == 0

    await eventually(is_gone, 20)
    await own.publish(Outgoing(common, b"meanwhile", partition=0))
    await eventually(lambda: b"meanwhile" in own.values(), 20)
    await own.world.make(own.topic, 2)
    await own.publish(Outgoing(own.topic, b"new", partition=0), Outgoing(own.topic, b"beside", partition=1))
    await eventually(lambda: {b"new", b"beside"} <= set(own.values()), 3 * METADATA_AGE_MS / 1_000)
    await broker.stop()
    await own.world.close()


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
