"""A topic of a group that is deleted and made anew while its members go on is read again, soon."""

from __future__ import annotations

import pytest

from fallow.shared.log.port import Outgoing
from fallow.shared.log.sharing.faststream_recipe import METADATA_AGE_MS, make_broker
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
