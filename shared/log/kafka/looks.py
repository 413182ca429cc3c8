"""One record before or behind a given offset, asked of Kafka now and then, and before an append after a rest: whether
the log still holds what was read from it, and whether it holds any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial

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
Offsets = Mapping[TopicPartition, int]
Found = dict[TopicPartition, Record]


class KafkaLooks:
    """One consumer for many looks, opened by the first. It reads nothing between two looks.

    A look that waits for another one has no more time than `bound_s` for both.
    """

    def __init__(self, kafka: str | KafkaAccess, client_id: str, *, bound_s: float = LOOK_BOUND_S) -> None:
        self._kafka, self._client_id, self._bound_s = access_to(kafka), client_id, bound_s
        self._consumer: SteadyConsumer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def last_before(self, offsets: Offsets) -> Found:
        """As the port says. After a failure the next look opens a new consumer."""
        return await self._bounded(offsets, partial(self._found, look=_last_before))

    async def first_from(self, offsets: Offsets) -> Found:
        """As the port says."""
        return await self._bounded(offsets, partial(self._found, look=_first_from))

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """As the port says."""
        return (await self._bounded({tp: offset}, self._found_at_once)).get(tp)

    async def _bounded(self, offsets: Offsets, find: Callable[[Offsets], Awaitable[Found]]) -> Found:
        try:
            async with asyncio.timeout(self._bound_s):
                return await self._by_itself(offsets, find)
        except (KafkaError, TimeoutError, OSError) as error:
            what = f"records at {dict(offsets)}"
            raise (refused(what, error) or LogUnavailable(f"{what}: {words_of(error)}")) from error

    async def _by_itself(self, offsets: Offsets, find: Callable[[Offsets], Awaitable[Found]]) -> Found:
        """Only a look that has begun closes the consumer where it fails: one that waits would take it from another."""
        async with self._one_at_a_time:
            try:
                return await find(offsets)
            except BaseException:  # also when it is out of time
                await self.stop()
                raise

    async def stop(self) -> None:
        """Close the consumer, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def _found_at_once(self, offsets: Offsets) -> Found:
        """By one fetch, where a record stands right before the offset. Where none does the offsets tell why."""
        consumer, found = await self._opened(), Found()
        for tp, offset in offsets.items():
            record = await _right_before(consumer, KafkaTopicPartition(*tp), offset)
            if record is not None:
                found[tp] = record
        return found if len(found) == len(offsets) else await self._found(offsets, _last_before)

    async def _found(self, offsets: Offsets, look: Look) -> Found:
        consumer = await self._opened()
        asked = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
        begin, end = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
        found = Found()
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
            fetch_max_wait_ms=STEP_MS,
            tries_most=TRIES_MOST,
        )
        try:
            await consumer.start()
        except BaseException:  # also when the look is cancelled: one that is half open answers nothing
            await close(consumer)
            raise
        self._consumer = consumer
        return consumer


async def _right_before(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int) -> Record | None:
    """None where one fetch brings no record of that offset. The partition stays assigned, and paused: to assign it anew
    would cost a question for its leader.
    """
    if offset < 1:
        return None
    if consumer.assignment() != {tp}:
        consumer.assign([tp])
    consumer.seek(tp, offset - 1)
    consumer.resume(tp)
    try:
        found = (await consumer.getmany(tp, timeout_ms=STEP_MS, max_records=1)).get(tp, [])
    except OffsetOutOfRangeError:
        return None
    finally:
        consumer.pause(tp)
    return found[0] if found and found[0].offset == offset - 1 else None


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
