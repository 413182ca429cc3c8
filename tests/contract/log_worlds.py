"""The clusters that the log's contract is held against: one in memory, one real."""

from __future__ import annotations

import itertools
import time
from typing import Protocol

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

from shared.log.kafka import KafkaLog
from shared.log.memory import MemoryBroker, MemoryLog
from shared.log.port import Log, TopicPartition

_numbers = itertools.count()


class World(Protocol):
    """A cluster on which tests make topics and forget records."""

    async def topic(self, partitions: int) -> str: ...
    async def grow(self, topic: str, partitions: int) -> None: ...
    async def delete_before(self, tp: TopicPartition, offset: int) -> None: ...
    async def log(self) -> Log: ...
    async def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.broker = MemoryBroker()

    async def topic(self, partitions: int) -> str:
        name = f"t{next(_numbers)}"
        self.broker.create_topic(name, partitions)
        return name

    async def grow(self, topic: str, partitions: int) -> None:
        self.broker.create_topic(topic, partitions)

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        self.broker.delete_before(tp, offset)

    async def log(self) -> Log:
        log = MemoryLog(self.broker)
        await log.start()
        return log

    async def close(self) -> None:
        return None


class KafkaWorld:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        self._logs: list[Log] = []

    async def start(self) -> None:
        await self._admin.start()

    async def topic(self, partitions: int) -> str:
        name = f"contract-{time.time_ns()}-{next(_numbers)}"
        await self._admin.create_topics([NewTopic(name, partitions, 1)])
        return name

    async def grow(self, topic: str, partitions: int) -> None:
        await self._admin.create_partitions({topic: NewPartitions(partitions)})

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        await self._admin.delete_records({KafkaTopicPartition(*tp): RecordsToDelete(before_offset=offset)})

    async def log(self) -> Log:
        log = KafkaLog(self.bootstrap, "contract")
        await log.start()
        self._logs.append(log)
        return log

    async def close(self) -> None:
        for log in self._logs:
            await log.stop()
        await self._admin.close()
