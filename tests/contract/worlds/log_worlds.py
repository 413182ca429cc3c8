"""The clusters that the log's contract is held against: one in memory, one real."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Log, Outgoing, Refusal, TopicPartition
from tests.contract.eventually import eventually

_numbers = itertools.count()

REFUSING = {
    Refusal.INVALID: {"cleanup.policy": "compact"},
    Refusal.TOO_LARGE: {"max.message.bytes": "10"},
}
"""Settings of a topic on which a record without a key is refused for this reason."""


class World(Protocol):
    """A cluster on which tests make topics and forget records."""

    async def topic(self, partitions: int, *, stamped: bool = False) -> str: ...
    async def topic_that_refuses(self, code: Refusal) -> str: ...
    async def refill(self, topic: str) -> None: ...
    async def transaction(self, tp: TopicPartition, values: list[bytes], *, commits: bool) -> None: ...
    def open_transaction(self, tp: TopicPartition, values: list[bytes]) -> AbstractAsyncContextManager[None]: ...
    async def grow(self, topic: str, partitions: int) -> None: ...
    async def delete(self, topic: str) -> None: ...
    async def make(self, topic: str, partitions: int) -> None: ...
    async def delete_before(self, tp: TopicPartition, offset: int) -> None: ...
    async def log(self) -> Log: ...
    async def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.broker = MemoryBroker(lambda: time.time_ns() // 1_000_000)

    async def topic(self, partitions: int, *, stamped: bool = False) -> str:
        name = f"t{next(_numbers)}"
        self.broker.create_topic(name, partitions)
        return name

    async def refill(self, topic: str) -> None:
        """Lose every record of the topic, as a topic that is deleted and made again does."""
        for partition in range(self.broker.topics()[topic]):
            self.broker.cut((topic, partition), 0)

    async def transaction(self, tp: TopicPartition, values: list[bytes], *, commits: bool) -> None:
        for value in values if commits else []:
            self.broker.write(Outgoing(tp[0], value, partition=tp[1]))
        for _ in [] if commits else values:
            self.broker.write_marker(tp)
        self.broker.write_marker(tp)

    @asynccontextmanager
    async def open_transaction(self, tp: TopicPartition, values: list[bytes]) -> AsyncIterator[None]:
        self.broker.hold(tp, len(values))
        yield
        self.broker.hold(tp, 0)
        await self.transaction(tp, values, commits=True)

    async def topic_that_refuses(self, code: Refusal) -> str:
        name = await self.topic(1)
        if code is Refusal.TOO_LARGE:
            self.broker.takes_bytes[name] = 0
        else:
            self.broker.refuses[name] = code
        return name

    async def grow(self, topic: str, partitions: int) -> None:
        self.broker.create_topic(topic, partitions)

    async def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    async def make(self, topic: str, partitions: int) -> None:
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
        self._asking: Log | None = None

    async def start(self) -> None:
        await self._admin.start()

    async def topic(self, partitions: int, *, stamped: bool = False) -> str:
        name = f"contract-{time.time_ns()}-{next(_numbers)}"
        config = {"message.timestamp.type": "LogAppendTime"} if stamped else {}
        await self._admin.create_topics([NewTopic(name, partitions, 1, topic_configs=config)])
        return name

    async def refill(self, topic: str) -> None:
        described = await self._admin.describe_topics([topic])
        await self.delete(topic)
        await self.make(topic, len(described[0]["partitions"]))

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics([topic])

    async def make(self, topic: str, partitions: int) -> None:
        """Also where one of this name is being deleted still."""
        new = NewTopic(topic, partitions, 1)

        async def is_created() -> bool:
            return not (await self._admin.create_topics([new])).topic_errors[0][1]

        await eventually(is_created)

    @asynccontextmanager
    async def open_transaction(self, tp: TopicPartition, values: list[bytes]) -> AsyncIterator[None]:
        producer = await self._in_transaction(tp, values)
        try:
            yield
            await producer.commit_transaction()
        finally:
            await producer.stop()

    async def transaction(self, tp: TopicPartition, values: list[bytes], *, commits: bool) -> None:
        """Its end is written when this returns: Kafka says that a transaction is over before it writes that into the
        partition, so that other records may come to stand between, and none behind its first can be read until then.
        """
        producer = await self._in_transaction(tp, values)
        try:
            await (producer.commit_transaction() if commits else producer.abort_transaction())
        finally:
            await producer.stop()
        if self._asking is None:
            self._asking = await self.log()
        log = self._asking

        async def is_over() -> bool:
            return await log.end_offsets([tp]) == await log.written_ends([tp])

        await eventually(is_over)

    async def _in_transaction(self, tp: TopicPartition, values: list[bytes]) -> AIOKafkaProducer:
        """A producer that has written these and not ended its transaction. Other test processes have other ids."""
        name = f"tx-{time.time_ns()}-{next(_numbers)}"
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name)
        await producer.start()
        try:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(tp[0], value, partition=tp[1])
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def topic_that_refuses(self, code: Refusal) -> str:
        name = f"contract-{time.time_ns()}-{next(_numbers)}"
        await self._admin.create_topics([NewTopic(name, 1, 1, topic_configs=REFUSING[code])])
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
