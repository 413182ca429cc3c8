"""One record before or behind a given offset, asked of Kafka now and then: whether the log still holds what was read
from it, and whether it holds any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from fallow.shared.log.kafka.closing import close
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.consumer import SteadyConsumer
from fallow.shared.log.kafka.producer import refused
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable, Record, TopicPartition, unreadable_at
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

LOOK_BOUND_S = 10.0
STEP_MS = 200
RECORDS_MOST, BACK_FACTOR = 100, 8
TRIES_MOST = 2
"""A look is made again, and its answer ends nothing: what cannot be read now is not waited for."""

FETCH_BYTES = 65_536
"""A fetch brings at least one batch, however large: more than one is of no use here."""

Held = tuple[int, int]
"""Where a partition begins and ends."""


class _Unreadable(Exception):
    """At this offset the bytes are damaged, or refused to us."""

    def __init__(self, offset: int) -> None:
        super().__init__(str(offset))
        self.offset = offset


Look = Callable[[SteadyConsumer, KafkaTopicPartition, int, Held], Awaitable[Record | None]]


class KafkaLooks:
    """One consumer for all looks of a process, opened by the first. It reads nothing between two looks."""

    def __init__(self, kafka: str | KafkaAccess, client_id: str) -> None:
        self._kafka, self._client_id = access_to(kafka), client_id
        self._consumer: SteadyConsumer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says. After a failure the next look opens a new consumer."""
        return await self._look(offsets, _last_before)

    async def first_from(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says."""
        return await self._look(offsets, _first_from)

    async def _look(self, offsets: Mapping[TopicPartition, int], look: Look) -> dict[TopicPartition, Record]:
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(LOOK_BOUND_S):
                    return await self._found(offsets, look)
            except (KafkaError, TimeoutError, OSError) as error:
                await self.stop()
                what = f"records at {dict(offsets)}"
                raise (refused(what, error) or LogUnavailable(f"{what}: {words_of(error)}")) from error

    async def stop(self) -> None:
        """Close the consumer, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def _found(self, offsets: Mapping[TopicPartition, int], look: Look) -> dict[TopicPartition, Record]:
        consumer = await self._opened()
        asked = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
        begin, end = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
        found: dict[TopicPartition, Record] = {}
        for tp, offset in asked.items():
            record = await look(consumer, tp, offset, (begin[tp], end[tp]))
            if record is not None:
                found[tp.topic, tp.partition] = record
        consumer.assign([])
        return found

    async def _opened(self) -> SteadyConsumer:
        if self._consumer is not None:
            return self._consumer
        consumer = SteadyConsumer(
            **client_options(self._kafka),
            client_id=f"{self._client_id}-looks",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
            tries_most=TRIES_MOST,
        )
        try:
            await consumer.start()
        except BaseException:  # also when the look is cancelled: one that is half open answers nothing
            await close(consumer)
            raise
        self._consumer = consumer
        return consumer


async def _last_before(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int, held: Held) -> Record | None:
    """Look back further and further: where a transaction ended, offsets hold no record. Of what cannot be read nothing
    is told: nobody can compare it.
    """
    begin, end = held
    stop, back = offset, 1
    while begin < stop <= end:
        start = max(begin, offset - back)
        try:
            found = [record async for record in _records(consumer, tp, start, stop)]
        except _Unreadable:
            return None
        if found:
            return found[-1]
        stop, back = start, back * BACK_FACTOR
    return None


async def _first_from(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int, held: Held) -> Record | None:
    """Where it cannot be read, an empty record stands for it: something is there."""
    begin, end = held
    try:
        async for record in _records(consumer, tp, max(begin, offset), end):
            return record
    except _Unreadable as found:
        return unreadable_at((tp.topic, tp.partition), found.offset)
    return None


async def _records(consumer: SteadyConsumer, tp: KafkaTopicPartition, start: int, stop: int) -> AsyncIterator[Record]:
    """The records from `start` on, up to but without `stop`. The position also moves past what is no record. Raises
    _Unreadable.
    """
    if start >= stop:
        return
    consumer.assign([tp])
    consumer.seek(tp, start)
    while consumer.standing()[tp] < stop:
        try:
            found = (await consumer.getmany(tp, timeout_ms=STEP_MS, max_records=RECORDS_MOST)).get(tp, [])
        except OffsetOutOfRangeError:
            return  # cut or deleted since the offsets were asked for
        for record in found:
            if record.offset >= stop:
                return
            yield record
        failure = consumer.take_lasting()
        if failure is not None:
            raise _Unreadable(failure.offset)
