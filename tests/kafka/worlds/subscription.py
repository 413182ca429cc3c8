"""A topic and a group on a real Kafka, and what a subscriber saw and committed of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiokafka.admin import AIOKafkaAdminClient

from fallow.shared.log.machine.losses import Loss
from fallow.shared.log.port import Log, Outgoing, Record
from fallow.shared.log.sharing.delivery import BatchHandler, Delivery, RetryPolicy, tell_loss
from fallow.shared.log.sharing.faststream_recipe import SteadyBroker, subscribe_batches
from tests.contract.worlds.log_worlds import KafkaWorld


class Subscription:
    """Made by `subscription_on`; closed by its world."""

    def __init__(self, world: KafkaWorld, topic: str, log: Log) -> None:
        self.world = world
        self.log = log
        self.bootstrap = world.bootstrap
        self.topic = topic
        self.group = f"group-{topic}"
        self.seen: list[Record] = []

    def subscribe(
        self,
        broker: SteadyBroker,
        handler: BatchHandler,
        *,
        topics: Sequence[str] = (),
        retry: RetryPolicy | None = None,
        on_loss: Callable[[Loss], None] = tell_loss,
        max_records: int = 500,
    ) -> Delivery:
        """Of the topic, if no others are named."""
        delivery = Delivery(handler, self.log, retry=retry, on_loss=on_loss)
        subscribe_batches(broker, topics or [self.topic], self.group, delivery, max_records=max_records)
        return delivery

    async def publish(self, *messages: Outgoing) -> None:
        await self.log.publish(messages)

    async def publish_values(self, *values: bytes) -> None:
        """All to partition 0, in this order."""
        await self.publish(*(Outgoing(self.topic, value, partition=0) for value in values))

    async def keep(self, records: list[Record]) -> None:
        """The handler that is always content."""
        self.seen.extend(records)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.seen]

    async def committed(self) -> dict[int, int]:
        """The group's offsets by partition, where there are any."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        offsets = await admin.list_consumer_group_offsets(self.group)
        await admin.close()
        return {tp.partition: at.offset for tp, at in sorted(offsets.items()) if at.offset >= 0}

    async def has_committed(self, expected: dict[int, int]) -> bool:
        return await self.committed() == expected

    async def has_reached(self, offset: int) -> bool:
        """Whether partition 0 is committed up to this offset; FastStream commits the others along with it."""
        return (await self.committed()).get(0) == offset


async def subscription_on(bootstrap: str, partitions: int = 2) -> Subscription:
    world = KafkaWorld(bootstrap)
    await world.start()
    return Subscription(world, await world.topic(partitions), await world.log())
