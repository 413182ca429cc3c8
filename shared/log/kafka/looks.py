"""One record before or behind a given offset, asked of Kafka now and then, and before an append after a rest: whether
the log still holds what was read from it, and whether it holds any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, OffsetOutOfRangeError

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
OPENING_BOUND_S = 15.0
"""A broker that answers late is asked five or six times before a consumer is open: more than one look may take."""

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


class _NothingThere(Exception):
    """The log begins behind this offset or ends before it."""


Look = Callable[[SteadyConsumer, KafkaTopicPartition, int, Held], Awaitable[Record | None]]
Offsets = Mapping[TopicPartition, int]
Found = dict[TopicPartition, Record]


class KafkaLooks:
    """One consumer for many looks, opened by the first. It reads nothing between two looks.

    A look that waits for another one has no more time than `bound_s` for both. Where that does not suffice to open the
    consumer, the opening goes on for the next look.
    """

    def __init__(self, kafka: str | KafkaAccess, client_id: str, *, bound_s: float = LOOK_BOUND_S) -> None:
        self._kafka, self._client_id, self._bound_s = access_to(kafka), client_id, bound_s
        self._consumer: SteadyConsumer | None = None
        self._opening: asyncio.Task[SteadyConsumer] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def last_before(self, offsets: Offsets) -> Found:
        """As the port says. After a failure the next look opens a new consumer."""
        return await self._bounded(offsets, partial(self._found, look=_last_before))

    async def first_from(self, offsets: Offsets) -> Found:
        """As the port says."""
        return await self._bounded(offsets, partial(self._found, look=_first_from))

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """As the port says."""
        return (await self._bounded({tp: offset}, self._found_at_once)).get(tp) if offset > 0 else None

    async def _bounded(self, offsets: Offsets, find: Callable[[Offsets], Awaitable[Found]]) -> Found:
        try:
            async with asyncio.timeout(self._bound_s):
                return await self._by_itself(offsets, find)
        except (KafkaError, TimeoutError, OSError) as error:
            what = f"records at {dict(offsets)}"
            raise (refused(what, error) or LogUnavailable(f"{what}: {words_of(error)}")) from error

    async def _by_itself(self, offsets: Offsets, find: Callable[[Offsets], Awaitable[Found]]) -> Found:
        """Only a look that has begun closes the consumer where it fails: one that waits would take it from another. Nor
        does a look in whose time it was opened, whatever it failed for: the next one has all of its own time for the
        answer.
        """
        async with self._one_at_a_time:
            was_open = self._consumer is not None
            try:
                return await find(offsets)
            except BaseException:  # also when it is out of time
                if was_open:
                    await self._close()
                elif self._consumer is not None:
                    self._consumer.pause(*self._consumer.assignment())  # it reads nothing between two looks
                raise

    async def stop(self) -> None:
        """Close the consumer, if there is one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
        await self._close()

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def _found_at_once(self, offsets: Offsets) -> Found:
        """By one fetch, where it tells: all but the end of a transaction and what cannot be read."""
        ((place, offset),) = offsets.items()
        tp = KafkaTopicPartition(*place)
        consumer = await self._opened(tp)
        try:
            record = await _right_before(consumer, tp, offset)
        except _NothingThere:
            return {}
        return {place: record} if record is not None else await self._found(offsets, _last_before)

    async def _found(self, offsets: Offsets, look: Look) -> Found:
        consumer = await self._opened()
        asked = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
        begin, end = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
        found = Found()
        for tp, offset in asked.items():
            record = await look(consumer, tp, offset, (begin[tp], end[tp]))
            if record is not None:
                found[tp.topic, tp.partition] = record
        consumer.pause(*consumer.assignment())  # without one it would ask for the leader of its next partition anew
        return found

    async def _opened(self, tp: KafkaTopicPartition | None = None) -> SteadyConsumer:
        """The consumer; a new one is connected to the leader of this partition too."""
        if self._consumer is None:
            opening = self._opening
            if opening is None or opening.done():
                opening = self._opening = asyncio.create_task(self._open(tp))
                opening.add_done_callback(_heard)
            await asyncio.wait({opening})  # a look that ends before leaves it alone
            if opening.cancelled():
                raise KafkaConnectionError("closed while it was opened")
            return opening.result()
        return self._consumer

    async def _open(self, tp: KafkaTopicPartition | None) -> SteadyConsumer:
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
            async with asyncio.timeout(OPENING_BOUND_S):
                await consumer.start()
                if tp is not None:
                    await consumer.reach(tp)
        except BaseException:  # also when it is cancelled: one that is half open answers nothing
            await close(consumer)
            raise
        self._consumer = consumer
        return consumer


def _heard(opening: asyncio.Task[SteadyConsumer]) -> None:
    """Where it failed behind the look that began it, nobody else asks: the next look opens anew."""
    if not opening.cancelled():
        opening.exception()


async def _right_before(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int) -> Record | None:
    """None where the one fetch brings no record of that offset, but may have passed over one. Raises _NothingThere.

    However late the answer comes, it is waited for: only the bound of the look ends that. The partition is assigned
    anew, which asks the broker nothing: what an earlier look has asked and not heard is no answer to this one.
    """
    consumer.assign([tp])
    consumer.seek(tp, offset - 1)
    found, is_answered = list[Record](), False
    try:
        while not found and not is_answered:
            is_answered = consumer.highwater(tp) is not None or tp in consumer.paused()
            wait_ms = 0 if is_answered else STEP_MS
            found = (await consumer.getmany(tp, timeout_ms=wait_ms, max_records=1)).get(tp, [])
    except OffsetOutOfRangeError as error:
        raise _NothingThere from error
    finally:
        consumer.pause(tp)
    if found:
        return found[0] if found[0].offset == offset - 1 else None
    stable = consumer.last_stable_offset(tp)
    if stable is not None and 0 <= stable < offset:
        raise _NothingThere
    return None


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
