"""The log on Apache Kafka, by aiokafka. Every call has a time bound; no write is repeated behind the caller's back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from aiokafka.structs import RecordMetadata

from fallow.shared.log.admin.topic_admin import delete_records, topic_record_bytes_max
from fallow.shared.log.kafka.closing import close, start_or_close
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.consumer import COMMITTED, WRITTEN
from fallow.shared.log.kafka.groups.group_timers import QUICK, GroupTimers
from fallow.shared.log.kafka.groups.member import KafkaMember
from fallow.shared.log.kafka.kept_client import end_of
from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.kafka.openings import Openings
from fallow.shared.log.kafka.producer import BoundedProducer, Compression, refused, send, send_all
from fallow.shared.log.kafka.reader import Fetching, KafkaReader
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import (
    AppendAnswer,
    Appended,
    AppendRefused,
    AppendUnknown,
    LogRefused,
    LogUnavailable,
    NoTopics,
    Outgoing,
    Reader,
    Record,
    TopicPartition,
)
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

APPEND_BOUND_MS = 3_000
PUBLISH_BOUND_MS = 10_000
REQUEST_BOUND_MS = 2_500
LOOK_BOUND_S = 0.5
"""So long, beyond a bound, is looked whether a topic is there at all. A Kafka that is there answers at once."""

LOG_APPEND_TIME = 1
"""The type of a time stamp that is the broker's."""

FETCH_WAIT_MS, LONE_FETCH_WAIT_MS = 20, 500
PATIENT_FETCH_BYTES = 262_144
"""With so much there, a patient reader is woken before its time."""

PUBLISH_CHUNK_RECORDS = 5_000
"""So many records share one bound, so that a long but moving publish is not taken for a dead one."""


TOPICS_NAMED = 3


class KafkaLog:
    """One process's handle onto a Kafka cluster. Lives in one event loop; safe for many tasks of it at once."""

    def __init__(  # noqa: PLR0913 - all by name; each is a difference of the embedded broker
        self,
        kafka: str | KafkaAccess,
        client_id: str,
        *,
        append_bound_ms: int = APPEND_BOUND_MS,
        publish_bound_ms: int = PUBLISH_BOUND_MS,
        fetch_wait_ms: int | None = None,
        compression: Compression | None = None,
        timers: GroupTimers = QUICK,
        has_clock: bool = True,
    ) -> None:
        """`fetch_wait_ms`: how long an idle fetch stays at the broker; see KafkaReader for why that is short for
        several partitions. None: as is best on a real broker, where data wakes a fetch at once and brings all there is.

        `compression` is for the embedded broker, which keeps only 5 MB of each partition; `timers` are EMBEDDED there,
        and `has_clock` is False: it answers every append with the same made-up time.
        """
        self._kafka = access_to(kafka)
        self._client_id = client_id
        self._append_bound_s = append_bound_ms / 1000
        self._publish_bound_s = publish_bound_ms / 1000
        self._fetch_wait_ms = fetch_wait_ms
        self._compression = compression
        self._timers = timers
        self._has_clock = has_clock
        self._publishing: BoundedProducer | None = None
        self._appending: dict[tuple[str, int | None], BoundedProducer] = {}
        self._queries: AIOKafkaConsumer | None = None
        self._written: AIOKafkaConsumer | None = None
        self._one_opens = asyncio.Lock()
        self._looks: KafkaLooks | None = None
        self._before_appends: dict[TopicPartition, KafkaLooks] = {}
        self._openings = Openings()  # of the clients of single partitions; the ones of the whole log wait for none

    async def start(self) -> None:
        """Connect the part that answers questions; a producer is opened by the first write, and what looks by the first
        look.
        """
        self._publishing, self._looks = self._producer(), KafkaLooks(self._kafka, self._client_id)
        queries = self._consumer("queries", COMMITTED)
        await self._open(queries)
        self._queries = queries

    def _producer(self, place: tuple[str, int | None] | None = None) -> BoundedProducer:
        return BoundedProducer(
            self._kafka,
            self._client_id,
            request_timeout_ms=REQUEST_BOUND_MS,
            compression=self._compression,
            place=place,
            openings=None if place is None else self._openings,
        )

    def _consumer(self, what: str, isolation: str) -> AIOKafkaConsumer:
        """One that answers questions and reads nothing. Where a topic ends, it tells by its isolation."""
        return AIOKafkaConsumer(
            **client_options(self._kafka),
            client_id=f"{self._client_id}-{what}",
            enable_auto_commit=False,
            isolation_level=isolation,
            request_timeout_ms=REQUEST_BOUND_MS,
        )

    async def _open(self, consumer: AIOKafkaConsumer) -> None:
        await start_or_close(consumer, self._publish_bound_s, f"no Kafka at {self._kafka}")

    async def stop(self) -> None:
        """Close the producers without sending what they still hold, and the rest."""
        queries, self._queries = self._queries, None
        written, self._written = self._written, None
        publishing, self._publishing = self._publishing, None
        looks, self._looks = self._looks, None
        producers, self._appending = [publishing, *self._appending.values()], {}
        all_looks, self._before_appends = [looks, *self._before_appends.values()], {}
        await asyncio.gather(
            *[each.close() for each in producers if each is not None],
            *[each.stop() for each in all_looks if each is not None],
            *[close(each) for each in (queries, written) if each is not None],
        )

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """Pipelined: all are handed to the producer in order, then all acknowledgements are awaited."""
        stamped_ms = None
        for first in range(0, len(messages), PUBLISH_CHUNK_RECORDS):
            stamped_ms = await self._publish_chunk(messages[first : first + PUBLISH_CHUNK_RECORDS])
        return stamped_ms

    def _stamp_of(self, answer: RecordMetadata) -> int | None:
        is_stamped = self._has_clock and answer.timestamp_type == LOG_APPEND_TIME
        return answer.timestamp if is_stamped else None

    async def _publish_chunk(self, messages: Sequence[Outgoing]) -> int | None:
        producers, producer = self._writing(), None
        acknowledgements: list[asyncio.Future[Any]] = []
        try:
            async with asyncio.timeout(self._publish_bound_s) as bound:
                producer = await producers.current(end_of(bound))
                await send_all(producer, messages, acknowledgements)
                answers = await asyncio.gather(*acknowledgements)
        except (KafkaError, TimeoutError, OSError, LogUnavailable) as error:
            _settle(acknowledgements)
            _abandon(producers, producer)
            if isinstance(error, LogUnavailable):
                raise
            what = f"publish of {len(messages)} records"
            raise await self._told(error, what, [message.topic for message in messages]) from error
        return max((stamp for answer in answers if (stamp := self._stamp_of(answer)) is not None), default=None)

    async def append(self, message: Outgoing) -> AppendAnswer:
        """One record, idempotent, acknowledged by all replicas in sync; unknown after `append_bound_ms`.

        By a producer of this partition's own, which is opened by the first append and kept: one that is abandoned takes
        with it all that it holds. Where it cannot be opened within the bound, nothing is sent, and the opening goes on;
        so it does where others are opened before it.
        """
        producers, producer = self._appender(message.topic, message.partition), None
        try:
            async with asyncio.timeout(self._append_bound_s) as bound:
                producer = await producers.current(end_of(bound))
                metadata = await (await send(producer, message))
        except (KafkaError, TimeoutError, OSError, LogUnavailable) as error:
            _abandon(producers, producer)
            what = f"append to {message.topic}"
            told = error if isinstance(error, LogRefused) else await self._told(error, what, [message.topic])
            if isinstance(told, LogRefused):
                return AppendRefused(told.code, str(told))
            return AppendUnknown(reason=str(told))
        if metadata.offset < 0:
            # A duplicate whose metadata the broker has forgotten is acknowledged without an offset.
            return AppendUnknown(reason=f"append to {message.topic}: acknowledged without an offset")
        return Appended(offset=metadata.offset, stamped_ms=self._stamp_of(metadata))

    async def begin_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asked of the broker, each time."""
        return await self._offsets(self._asking().beginning_offsets, tps)

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asked of the broker, each time."""
        return await self._offsets(self._asking().end_offsets, tps)

    async def written_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Asked of the broker, each time, by a consumer of its own, which is opened by the first question."""
        self._asking()
        async with self._one_opens:
            if self._written is None:
                consumer = self._consumer("written-ends", WRITTEN)
                await self._open(consumer)
                self._written = consumer
        return await self._offsets(self._written.end_offsets, tps)

    async def _offsets(self, ask: Any, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            async with asyncio.timeout(self._append_bound_s):
                answer = await ask([KafkaTopicPartition(*tp) for tp in tps])
        except (KafkaError, TimeoutError, OSError) as error:
            what = f"offsets of {_some_of([f'{topic}/{partition}' for topic, partition in sorted(tps)])}"
            raise await self._told(error, what, [topic for topic, _ in tps]) from error
        return {(tp.topic, tp.partition): offset for tp, offset in answer.items()}

    async def _told(self, error: Exception, what: str, topics: Collection[str]) -> LogUnavailable:
        """The message for an error: where topics may be the cause and are not there, it names them."""
        may_be_gone = isinstance(error, UnknownTopicOrPartitionError | KafkaTimeoutError)
        if may_be_gone and self._queries is not None:
            with contextlib.suppress(LogUnavailable, TimeoutError):
                async with asyncio.timeout(LOOK_BOUND_S):
                    counts = await self.partition_counts(sorted(set(topics)))
                if gone := [topic for topic, count in counts.items() if not count]:
                    return NoTopics(gone)
        return refused(what, error) or LogUnavailable(f"{what}: {words_of(error)}")

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """By a consumer of its own, which is opened by the first look."""
        return await self._looking().last_before(offsets)

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """By a consumer of this partition's own, which is opened by the first look and kept: one whose leader is away
        takes up all of its consumer.
        """
        self._looking()
        looks = self._before_appends.get(tp)
        if looks is None:
            looks = self._before_appends[tp] = KafkaLooks(
                self._kafka,
                self._client_id,
                bound_s=self._append_bound_s,
                step_bound_s=REQUEST_BOUND_MS / 1000,
                openings=self._openings,
            )
        return await looks.stands_before(tp, offset)

    async def first_from(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """By the same consumer as `last_before`."""
        return await self._looking().first_from(offsets)

    async def first_since(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """Asked of the broker, each time."""
        asked = KafkaTopicPartition(*tp)
        try:
            async with asyncio.timeout(self._append_bound_s):
                found = (await self._asking().offsets_for_times({asked: timestamp_ms}))[asked]
        except (KafkaError, TimeoutError, OSError) as error:
            what = f"offset of {tp[0]}/{tp[1]} at {timestamp_ms}"
            raise await self._told(error, what, [tp[0]]) from error
        return None if found is None else found.offset

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """By Kafka's DeleteRecords."""
        await delete_records(self._kafka, tp, offset)

    async def partitions(self, topic: str) -> int:
        """Asked of the broker, each time, since a topic may appear or grow."""
        return (await self.partition_counts([topic]))[topic]

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """The broker tells of all topics that this user may see."""
        client = self._asking()._client  # noqa: SLF001 - the consumer itself keeps no metadata of topics it does not read
        try:
            async with asyncio.timeout(self._append_bound_s):
                cluster = await client.fetch_all_metadata()
        except (KafkaError, TimeoutError, OSError) as error:
            raise LogUnavailable(f"partitions of {_some_of(topics)}: {words_of(error)}") from error
        return {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}

    async def topic_record_bytes_max(self, topic: str) -> int | None:
        """By Kafka's DescribeConfigs."""
        return await topic_record_bytes_max(self._kafka, topic)

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        """A consumer of its own, so that a slow reader holds up no other."""
        return KafkaReader(self._kafka, self._client_id, positions, self._fetching(len(positions), patient_ms))

    def _fetching(self, partitions: int, patient_ms: int) -> Fetching:
        if self._fetch_wait_ms is not None:
            return Fetching(wait_ms=self._fetch_wait_ms, gather_ms=self._fetch_wait_ms)
        if patient_ms:
            return Fetching(wait_ms=patient_ms, bytes_min=PATIENT_FETCH_BYTES)
        # A fetch of one partition leaves nothing out, so it may stay at the broker: data wakes it at once.
        return Fetching(wait_ms=FETCH_WAIT_MS if partitions > 1 else LONE_FETCH_WAIT_MS)

    def member(self, group: str, topic: str) -> KafkaMember:
        """A consumer of its own that never reads anything."""
        return KafkaMember(self._kafka, self._client_id, group, topic, self._timers)

    def _writing(self) -> BoundedProducer:
        if self._publishing is None:
            raise RuntimeError("this log is not started")
        return self._publishing

    def _appender(self, topic: str, partition: int | None) -> BoundedProducer:
        self._writing()
        if (topic, partition) not in self._appending:
            self._appending[topic, partition] = self._producer((topic, partition))
        return self._appending[topic, partition]

    def _looking(self) -> KafkaLooks:
        if self._looks is None:
            raise LogUnavailable("this log is closed, or not started yet")
        return self._looks

    def _asking(self) -> AIOKafkaConsumer:
        if self._queries is None:
            raise RuntimeError("this log is not started")
        return self._queries


def _abandon(producers: BoundedProducer, producer: AIOKafkaProducer | None) -> None:
    if producer is not None:
        producers.abandon(producer)


def _some_of(topics: Collection[str]) -> str:
    """A few of them by name, and how many others: there is one for each tenant, perhaps."""
    named = list(topics)[:TOPICS_NAMED]
    return ", ".join(named) + (f" and {len(topics) - len(named)} more" if len(topics) > len(named) else "")


def _settle(acknowledgements: Sequence[asyncio.Future[Any]]) -> None:
    """Take note of every outcome, so that asyncio does not report the rest as never retrieved."""
    for acknowledgement in acknowledgements:
        if not acknowledgement.done():
            acknowledgement.cancel()
        elif not acknowledgement.cancelled():
            acknowledgement.exception()
