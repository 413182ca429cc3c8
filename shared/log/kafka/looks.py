"""One record before or behind a given offset, asked of Kafka now and then, and before an append after a rest: whether
the log still holds what was read from it, and whether it holds any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import ConsumerStoppedError, KafkaConnectionError, KafkaError, OffsetOutOfRangeError

from fallow.shared.log.kafka.closing import close, connect
from fallow.shared.log.kafka.connection import client_options, opening_bound_s
from fallow.shared.log.kafka.consumer import SteadyConsumer
from fallow.shared.log.kafka.kept_client import KeptClient, end_of, heard
from fallow.shared.log.kafka.openings import Openings
from fallow.shared.log.kafka.producer import refused
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable, Record, TopicPartition, unreadable_at
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

LOOK_BOUND_S = 10.0
STEP_MS = 200
RECORDS_MAX, BACK_FACTOR = 100, 8

TRIES_MAX = 2
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
Find = Callable[[SteadyConsumer, Offsets], Coroutine[Any, Any, Found]]


class KafkaLooks:
    """One consumer for many looks, one look at a time. The first one opens it, and one that fails after it was open
    closes it: whatever it failed for, its consumer may never answer again.

    A look that waits for another one, or for the consumer, has no more time than `bound_s` for all. An opening goes on
    for the next look, as long as each of its steps takes no longer than `step_bound_s`. `openings` are shared by
    clients of a process: the consumer begins to open in its turn. `consumer` makes one from its settings.
    """

    def __init__(
        self,
        kafka: str | KafkaAccess,
        client_id: str,
        *,
        bound_s: float = LOOK_BOUND_S,
        step_bound_s: float = LOOK_BOUND_S,
        openings: Openings | None = None,
        consumer: Callable[..., SteadyConsumer] = SteadyConsumer,
    ) -> None:
        self._kafka, self._client_id, self._bound_s = access_to(kafka), client_id, bound_s
        self._step_bound_s, self._consumer = step_bound_s, consumer
        opening_s = opening_bound_s(self._kafka, step_bound_s)
        self._kept = KeptClient(self._make, self._start, close, bound_s=opening_s, openings=openings)
        self._places: list[KafkaTopicPartition] = []
        self._asked: asyncio.Task[Found] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def last_before(self, offsets: Offsets) -> Found:
        """As the port says."""
        return await self._bounded(offsets, partial(_found, look=_last_before))

    async def first_from(self, offsets: Offsets) -> Found:
        """As the port says."""
        return await self._bounded(offsets, partial(_found, look=_first_from))

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """As the port says."""
        return (await self._bounded({tp: offset}, _found_at_once)).get(tp) if offset > 0 else None

    async def stop(self) -> None:
        """For good: end the look that is made, and the opening, and close the consumer."""
        if self._asked is not None:
            self._asked.cancel()
        await self._kept.stop()

    async def _bounded(self, offsets: Offsets, find: Find) -> Found:
        try:
            async with asyncio.timeout(self._bound_s) as bound, self._one_at_a_time:
                self._places = [KafkaTopicPartition(*tp) for tp in offsets]
                consumer = await self._kept.opened(end_of(bound))
                return await self._ask(consumer, find(consumer, offsets))
        except (KafkaError, ConsumerStoppedError, TimeoutError, OSError) as error:
            what = f"records at {', '.join(f'{tp[0]}/{tp[1]}/{offset}' for tp, offset in offsets.items())}"
            raise (refused(what, error) or LogUnavailable(f"{what}: {words_of(error)}")) from error

    async def _ask(self, consumer: SteadyConsumer, look: Coroutine[Any, Any, Found]) -> Found:
        """In a task of its own, which a stop can end while its caller goes on."""
        asked = self._asked = asyncio.create_task(look)
        asked.add_done_callback(heard)
        try:
            await asyncio.wait({asked})
            if asked.cancelled():
                raise KafkaConnectionError("closed while it was asked")
            found = asked.result()
        except BaseException:  # also when it is out of time
            asked.cancel()
            self._kept.close(consumer)
            raise
        finally:
            self._asked = None
        # It reads nothing between two looks; without an assignment it would ask for the next leader anew.
        consumer.pause(*consumer.assignment())
        return found

    def _make(self) -> SteadyConsumer:
        return self._consumer(
            **client_options(self._kafka),
            client_id=f"{self._client_id}-looks",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=STEP_MS,
            request_timeout_ms=int(1000 * self._step_bound_s),
            tries_max=TRIES_MAX,
        )

    async def _start(self, consumer: SteadyConsumer) -> None:
        """It is open when it is connected to the leaders of the places that the newest look asks for."""
        await connect(consumer)
        await consumer.reach(self._places)


async def _found_at_once(consumer: SteadyConsumer, offsets: Offsets) -> Found:
    """By one fetch, where it tells: all but the end of a transaction and what cannot be read."""
    ((place, offset),) = offsets.items()
    try:
        record = await _right_before(consumer, KafkaTopicPartition(*place), offset)
    except _NothingThere:
        return {}
    return {place: record} if record is not None else await _found(consumer, offsets, look=_last_before)


async def _found(consumer: SteadyConsumer, offsets: Offsets, *, look: Look) -> Found:
    asked = {KafkaTopicPartition(*tp): offset for tp, offset in offsets.items()}
    begin, end = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
    found = Found()
    for tp, offset in asked.items():
        record = await look(consumer, tp, offset, (begin[tp], end[tp]))
        if record is not None:
            found[tp.topic, tp.partition] = record
    return found


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
    if found:
        return found[0] if found[0].offset == offset - 1 else None
    stable = consumer.last_stable_offset(tp)
    if stable is not None and 0 <= stable < offset:
        raise _NothingThere
    return None


async def _last_before(consumer: SteadyConsumer, tp: KafkaTopicPartition, offset: int, held: Held) -> Record | None:
    """Look back further and further: where a transaction ended, offsets hold no record. Records that cannot be read are
    left out: they cannot be compared.
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
            found = (await consumer.getmany(tp, timeout_ms=STEP_MS, max_records=RECORDS_MAX)).get(tp, [])
        except OffsetOutOfRangeError:
            return  # cut or deleted since the offsets were asked for
        for record in found:
            if record.offset >= stop:
                return
            yield record
        failure = consumer.take_lasting()
        if failure is not None:
            raise _Unreadable(failure.offset)
