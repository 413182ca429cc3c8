"""The groups that the contract of a shared topic is held against: one of the fault worlds, and one on Kafka."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from fallow.shared.log.machine.losses import Loss
from fallow.shared.log.port import Log, Outgoing
from fallow.shared.log.sharing.delivery import BatchHandler, Delivery, RetryPolicy
from fallow.shared.log.sharing.faststream_recipe import FastStreamSubscription
from fallow.shared.log.sharing.share import Subscription
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.simulator.process import Process
from fallow.simulator.shells.log import WorldLog
from fallow.simulator.shells.member import WorldMember
from fallow.simulator.shells.part import NAMESPACE
from fallow.simulator.shells.share import Sharing
from fallow.simulator.world import World
from tests.contract.eventually import eventually
from tests.contract.worlds.log_worlds import KafkaWorld

MAX = 100
RETRY = RetryPolicy(wait_ms_min=20, wait_ms_max=100, give_up_after_ms=500)
TOPIC = "submissions"

_numbers = itertools.count()


class Settings:
    embedded = False
    batch_records = MAX

    def __init__(self, kafka: str) -> None:
        self.kafka_access = KafkaAccess(kafka)


class ShareWorld(Protocol):
    """A topic of three partitions, and a group that shares it."""

    async def publish(self, *values: bytes) -> None:
        """Into partition 0."""

    def member(self, handler: BatchHandler, on_loss: Callable[[Loss], None]) -> tuple[Delivery, Subscription]: ...
    async def committed(self) -> int | None:
        """Of partition 0."""

    async def refill(self, *values: bytes) -> None:
        """Partition 0 holds these alone, and the group has come as far as before. No member is there."""

    async def restore(self) -> None:
        """Write partition 0 again as it was, each record with its stamp, as a mirror does. No member is there."""

    async def delete_before(self, offset: int) -> None: ...
    async def close(self) -> None: ...


class SimulatedShares:
    def __init__(self) -> None:
        self._world = World(1, random.Random(1), faults=(), keep_items=frozenset())
        self._topic = f"{NAMESPACE}.{TOPIC}"
        self._log: Log = WorldLog(self._world.broker, "tests", NAMESPACE, members=_no_member)
        self._began_ms = _now_ms()
        self._pump = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        while True:
            self._world.engine.run_to(_now_ms() - self._began_ms)
            await asyncio.sleep(0.001)

    async def publish(self, *values: bytes) -> None:
        await self._log.publish([Outgoing(self._topic, value, partition=0) for value in values])

    def member(self, handler: BatchHandler, on_loss: Callable[[Loss], None]) -> tuple[Delivery, Subscription]:
        process = Process(self._world, f"member-{next(_numbers)}", "admission", lambda _: [Told(sharing)])
        sharing = Sharing(process, NAMESPACE, MAX)
        process.start()
        delivery = Delivery(handler, self._log, retry=RETRY, on_loss=on_loss)
        return delivery, sharing.subscription([self._topic], f"{NAMESPACE}.admission", delivery)

    async def committed(self) -> int | None:
        return self._world.commits.next_offset("admission", (TOPIC, 0)) or None

    async def refill(self, *values: bytes) -> None:
        broker = self._world.broker
        broker.lose_tail((TOPIC, 0), len(broker.log[TOPIC, 0]))
        await self.publish(*values)

    async def restore(self) -> None:
        broker = self._world.broker
        records = list(broker.log[TOPIC, 0])
        broker.lose_tail((TOPIC, 0), len(records))
        broker.log[TOPIC, 0] += records

    async def delete_before(self, offset: int) -> None:
        self._world.broker.delete_before((TOPIC, 0), offset)

    async def close(self) -> None:
        self._pump.cancel()


class Told:
    """All of a process that is nothing but its share."""

    is_ready = True

    def __init__(self, sharing: Sharing) -> None:
        self.told = sharing.told

    def begin(self) -> None:
        return None

    def end(self) -> None:
        return None


class KafkaShares:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._world = bootstrap, KafkaWorld(bootstrap)
        self._group = f"shares-{time.time_ns()}-{next(_numbers)}"

    async def start(self) -> None:
        await self._world.start()
        self._topic, self._log = await self._world.topic(3), await self._world.log()

    async def publish(self, *values: bytes) -> None:
        await self._log.publish([Outgoing(self._topic, value, partition=0) for value in values])

    def member(self, handler: BatchHandler, on_loss: Callable[[Loss], None]) -> tuple[Delivery, Subscription]:
        delivery = Delivery(handler, self._log, retry=RETRY, on_loss=on_loss)
        name = f"member-{next(_numbers)}"
        return delivery, FastStreamSubscription(Settings(self._bootstrap), name, [self._topic], self._group, delivery)

    async def committed(self) -> int | None:
        return next((offset for partition, (offset, _) in (await self._said()).items() if partition == 0), None)

    async def _said(self) -> dict[int, tuple[int, str]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        found = await admin.list_consumer_group_offsets(self._group)
        await admin.close()
        return {tp.partition: (said.offset, said.metadata) for tp, said in found.items() if said.offset >= 0}

    async def refill(self, *values: bytes) -> None:
        """Kafka forgets what was committed of a topic that is deleted; of one that loses its tail it remembers it."""
        said = await self._said()
        await self._empty()
        await self.publish(*values)
        await self._commit(said)

    async def restore(self) -> None:
        """The topics of these worlds keep the stamp of the producer, as those of a mirror do."""
        said, end = await self._said(), (await self._ends())[self._topic, 0]
        found = [await self._log.first_from({(self._topic, 0): offset}) for offset in range(end)]
        await self._empty()
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap)
        await producer.start()
        for record in (record for each in found for record in each.values()):
            await producer.send_and_wait(
                self._topic, record.value, record.key, partition=0, timestamp_ms=record.timestamp_ms
            )
        await producer.stop()
        await self._commit(said)

    async def _empty(self) -> None:
        await self._world.refill(self._topic)
        await eventually(self._is_there)

    async def _commit(self, said: dict[int, tuple[int, str]]) -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=self._group, enable_auto_commit=False)
        tps = {TopicPartition(self._topic, partition): place for partition, place in said.items()}
        consumer.assign(list(tps))
        await consumer.start()
        await consumer.commit(tps)
        await consumer.stop()

    async def _is_there(self) -> bool:
        return await self._log.partitions(self._topic) == 3 and set((await self._ends()).values()) == {0}

    async def _ends(self) -> dict[tuple[str, int], int]:
        return await self._log.end_offsets([(self._topic, partition) for partition in range(3)])

    async def delete_before(self, offset: int) -> None:
        await self._world.delete_before((self._topic, 0), offset)

    async def close(self) -> None:
        await self._world.close()


def _no_member(group: str) -> WorldMember:
    raise AssertionError(group)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
