"""One record at a given offset, asked of Kafka now and then: whether the log still holds what was read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from shared.log.kafka_closing import close
from shared.log.kafka_consumer import SteadyConsumer
from shared.log.port import LogUnavailable, Record, TopicPartition
from shared.runtime.kafka_access import KafkaAccess, access_to

LOOK_BOUND_S = 10.0
STEP_MS = 200
FETCH_BYTES = 65_536
"""A fetch brings at least one batch, however large: more than one is of no use here."""


class KafkaLooks:
    """One consumer for all looks of a process, opened by the first. It reads nothing between two looks."""

    def __init__(self, kafka: str | KafkaAccess, client_id: str) -> None:
        self._kafka, self._client_id = access_to(kafka), client_id
        self._consumer: SteadyConsumer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def records_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says. After a failure the next look opens a new consumer."""
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(LOOK_BOUND_S):
                    return await self._look(offsets)
            except (KafkaError, TimeoutError, OSError) as error:
                await self.stop()
                raise LogUnavailable(f"records at {dict(offsets)}: {error!r}") from error

    async def stop(self) -> None:
        """Close the consumer, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def _look(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        consumer = await self._opened()
        asked = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
        begin, end = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
        found: dict[TopicPartition, Record] = {}
        for tp, offset in asked.items():
            if begin[tp] <= offset < end[tp]:
                record = await _record_at(consumer, tp, offset)
                if record is not None:
                    found[tp.topic, tp.partition] = record
        consumer.assign([])
        return found

    async def _opened(self) -> SteadyConsumer:
        if self._consumer is not None:
            return self._consumer
        consumer = SteadyConsumer(
            **self._kafka.client_options(),
            client_id=f"{self._client_id}-looks",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        try:
            await consumer.start()
        except BaseException:  # also when the look is cancelled: one that is half open answers nothing
            await close(consumer)
            raise
        self._consumer = consumer
        return consumer


async def _record_at(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int) -> Record | None:
    """None where the offset holds no record: another one comes first, or the position moves past it."""
    consumer.assign([tp])
    consumer.seek(tp, offset)
    while consumer.standing()[tp] <= offset:
        try:
            found = (await consumer.getmany(tp, timeout_ms=STEP_MS, max_records=1)).get(tp, [])
        except OffsetOutOfRangeError:
            return None  # cut or deleted since the offsets were asked for
        if found:
            return found[0] if found[0].offset == offset else None
    return None
