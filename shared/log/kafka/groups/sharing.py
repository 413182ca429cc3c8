"""The consumer of a service whose replicas share a topic: it is woken seldom under load, and a Delivery says what
is read and committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from string import hexdigits
from typing import Any

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata

from fallow.shared.log.kafka.consumer import Batches, SteadyConsumer
from fallow.shared.log.kafka.groups.commits import CommittingClient, TopicsGone
from fallow.shared.log.machine.losses import Place
from fallow.shared.log.port import LogRefused, LogTruncated, LogUnavailable, Refusal, TopicPartition, UnreadableRecords
from fallow.shared.log.sharing.delivery import Delivery
from fallow.shared.log.sharing.share import CommitFailed

POLL_WAIT_MS = 200
"""An empty poll lasts at least so long, whatever it is asked for: FastStream sleeps after each."""

COMMITTED_BOUND_S = 10.0
BUSY_RECORDS, BUSY_WAIT_MS_MAX, BUSY_BYTES = 24, 25, 1_048_576
"""After a poll with so many records the next fetch stays at the broker for three milliseconds for each eight of them,
but not longer than this, unless so many bytes are there: under load a few larger batches cost much less than many small
ones, here and for all who read what comes of them. A wait that began longer would make batches of a middling load
larger, and so make itself longer.
"""

IDLE_WAIT_MS = 50
BATCH_RECORDS = 500
CHECKSUM, CHECKSUM_DIGITS = "crc32:", 8
BATCH_BYTES_MAX = 1_048_576
"""So many bytes make a batch full, and the last record may go beyond: what a record costs to be handled goes by its
size. What is added to a full batch (below) is bounded apart from it.
"""

SHARE_OF_OTHERS = 4
"""A full batch is made larger by this part of it, in records and in bytes, for each topic that found no room."""

logger = logging.getLogger(__name__)


class SharingConsumer(SteadyConsumer):
    """What FastStream takes for its consumer. `is_paced` is False for the embedded broker, where a fetch that waits
    does not wake when something comes.
    """

    def __init__(self, *topics: str, delivery: Delivery, is_paced: bool = True, **settings: Any) -> None:
        super().__init__(*topics, **{**settings, "auto_offset_reset": "none"})
        self._delivery, self._is_paced = delivery, is_paced
        delivery.join(KafkaShare(self))

    async def start(self) -> None:
        """As aiokafka's. Reaches into its coordinator, of aiokafka 0.14."""
        await super().start()
        self._coordinator._client = CommittingClient(self._coordinator._client)  # noqa: SLF001 - see above

    async def getmany(
        self,
        *_partitions: KafkaTopicPartition,
        timeout_ms: int = 0,  # noqa: ARG002 - FastStream sleeps as long again
        max_records: int | None = None,
        max_bytes: int = BATCH_BYTES_MAX,  # noqa: ARG002 - the same for all
    ) -> Batches:
        """What the delivery takes, of all partitions. FastStream tries again at once whatever is raised, without a
        word: what no other try can mend ends the delivery.
        """
        try:
            found = await self._delivery.take(max_records or BATCH_RECORDS)
        except KafkaError as error:
            self._delivery.reading_failed(error)
            raise
        except ConsumerStoppedError:
            raise
        except Exception as error:
            self._delivery.fail(error)
            raise
        return {KafkaTopicPartition(*tp): records for tp, records in found.items()}

    async def fetched(self, most: int) -> Batches:
        """What is there, at once; an empty answer takes its time, and a full one has something of every topic. Raises
        KafkaError.
        """
        found = await super().getmany(timeout_ms=POLL_WAIT_MS, max_records=most, max_bytes=BATCH_BYTES_MAX)
        if sum(map(len, found.values())) >= most or self.room.is_full:
            self._go_behind(found)
            await self._take_from_others(found, most)
        if self._is_paced:
            self._pace(sum(map(len, found.values())))
        return found

    def _go_behind(self, found: Batches) -> None:
        """Let the next poll begin with partitions that this one had no room for: aiokafka takes from the one that was
        fetched first until it is empty, and a flood fills it with thousands.
        """
        fetched = self._fetcher._records  # noqa: SLF001 - see SteadyConsumer
        for tp in found:
            if tp in fetched:
                fetched.move_to_end(tp)

    async def _take_from_others(self, found: Batches, max_records: int) -> None:
        """Add some of each topic that the batch has nothing of: a tenant's own topic keeps no other one waiting."""
        topics = {tp.topic for tp in found}
        others: dict[str, list[KafkaTopicPartition]] = {}
        for tp in list(self._fetcher._records):  # noqa: SLF001 - see above
            if tp.topic not in topics:
                others.setdefault(tp.topic, []).append(tp)
        for waiting in others.values():
            try:
                more = await super().getmany(
                    *waiting,
                    timeout_ms=0,
                    max_records=max(1, max_records // SHARE_OF_OTHERS),
                    max_bytes=BATCH_BYTES_MAX // SHARE_OF_OTHERS,
                )
            except KafkaError as error:
                # What was found stands. The others are where they were, and the next poll begins with them.
                logger.warning("some topics are left for the next poll: %r", error)
                return
            for tp, records in more.items():
                found.setdefault(tp, []).extend(records)

    def _pace(self, records: int) -> None:
        """Say how the next fetch waits; it goes out behind this poll. Reaches into the fetcher of aiokafka 0.14."""
        is_busy = records >= BUSY_RECORDS
        wait_ms = min(3 * records // 8, BUSY_WAIT_MS_MAX) if is_busy else IDLE_WAIT_MS
        self._fetcher._fetch_min_bytes = BUSY_BYTES if is_busy else 1  # noqa: SLF001 - see above
        self._fetcher._fetch_max_wait_ms = wait_ms  # noqa: SLF001

    @property
    def assignment_now(self) -> object | None:
        """Another object for each share that the group has given us. Reaches into aiokafka 0.14."""
        subscription = self._subscription.subscription
        return None if subscription is None else subscription.assignment

    async def places(self, tps: Collection[KafkaTopicPartition]) -> dict[TopicPartition, Place]:
        """What the group has committed, and what was noted along with it. The public committed() leaves that out."""
        found = await self._coordinator.fetch_committed_offsets(list(tps))
        return {(tp.topic, tp.partition): _place(*said) for tp, said in found.items() if said.offset >= 0}

    def is_there(self, topic: str) -> bool:
        """Whether the topic was there when the group's topics were asked for last."""
        return bool(self._client.cluster.partitions_for_topic(topic))

    def hold(self, tp: KafkaTopicPartition) -> None:
        """As SteadyConsumer's. Of a partition of a topic to which we have no right aiokafka waits for the place that is
        committed, without end, and reads no other partition of that broker meanwhile: it gets one that is never read.
        """
        assignment = self._subscription.subscription.assignment
        state = assignment.state_value(tp)
        if not state.has_valid_position:
            self.seek(tp, 0)
        state.update_committed(OffsetAndMetadata(0, ""))
        self._coordinator.start_commit_offsets_refresh_task(assignment)  # it ended with the refusal
        super().hold(tp)

    async def stop(self) -> None:
        """Commit what is left, then as aiokafka's."""
        await self._delivery.stop()
        await super().stop()


class KafkaShare:
    """The port onto a consumer."""

    def __init__(self, consumer: SharingConsumer) -> None:
        self._consumer = consumer
        self._assignment: object | None = None
        self._generation = 0

    @property
    def generation(self) -> int:
        """Counts the assignments."""
        assignment = self._consumer.assignment_now
        if assignment is not self._assignment:
            self._assignment = assignment
            self._generation += 1
        return self._generation

    def assigned(self) -> frozenset[TopicPartition]:
        """While the group rearranges itself, what was assigned before."""
        return frozenset((tp.topic, tp.partition) for tp in self._consumer.assignment())

    async def committed(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Place]:
        """As the port says."""
        try:
            async with asyncio.timeout(COMMITTED_BOUND_S):
                return await self._consumer.places([KafkaTopicPartition(*tp) for tp in tps])
        except (KafkaError, TimeoutError) as error:
            text = f"committed offsets: {error!r}"
            # aiokafka tells the kind of this one by its name alone.
            is_refused = TopicAuthorizationFailedError.__name__ in text
            raise (LogRefused(Refusal.NOT_ALLOWED, text) if is_refused else LogUnavailable(text)) from error

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp in self.assigned():
            self._consumer.seek(KafkaTopicPartition(*tp), offset)

    def hold(self, tp: TopicPartition) -> None:
        """As the port says."""
        if tp in self.assigned():
            self._consumer.hold(KafkaTopicPartition(*tp))

    def release(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp in self.assigned():
            self._consumer.seek(KafkaTopicPartition(*tp), offset)
            self._consumer.resume(KafkaTopicPartition(*tp))

    async def poll(self, most: int) -> Batches:
        """As the port says."""
        consumer = self._consumer
        await self._tell_unreadable()
        try:
            return await consumer.fetched(most)
        except NoOffsetForPartitionError as error:
            # The group has never committed anything of it: all of it is new.
            await consumer.seek_to_beginning(error.args[0])
        except OffsetOutOfRangeError as error:
            asked: dict[KafkaTopicPartition, int] = error.args[0]
            begins, ends = await consumer.beginning_offsets(list(asked)), await consumer.end_offsets(list(asked))
            for tp in sorted(asked):  # the others are met again by the next poll
                raise LogTruncated((tp.topic, tp.partition), asked=asked[tp], begin=begins[tp], end=ends[tp]) from error
        return {}

    async def _tell_unreadable(self) -> None:
        """Raise what some tries have not mended. While the end of the partition cannot be asked, it is tried anew."""
        failure = self._consumer.take_lasting()
        if failure is None:
            return
        tp = failure.tp
        try:
            end = (await self._consumer.end_offsets([tp]))[tp]
        except TopicAuthorizationFailedError:
            end = failure.offset  # the right to read the topic was taken from us: where it ends is not told either
        behind = end if failure.behind is None else min(failure.behind, end)
        raise UnreadableRecords(
            (tp.topic, tp.partition), asked=failure.offset, begin=behind, end=end, why=failure.why
        ) from failure.error

    async def commit(self, places: Mapping[TopicPartition, Place]) -> None:
        """As the port says. Waits while Kafka is away. A group that rearranges itself because a topic is gone commits
        nothing of it: one of that name may have been made meanwhile.
        """
        there = {tp: place for tp, place in places.items() if self._consumer.is_there(tp[0])}
        if not there:
            return
        said = {KafkaTopicPartition(*tp): (place.next_offset, _note(place)) for tp, place in there.items()}
        try:
            await self._consumer.commit(said)
        except (KafkaError, TopicsGone) as error:
            raise CommitFailed(repr(error)) from error


class CommitBeforeLeaving(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Before partitions go to another member, what was handled of them is committed."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    async def on_partitions_revoked(self, revoked: Collection[KafkaTopicPartition]) -> None:
        """The consumer still holds them here."""
        if revoked:
            await self._delivery.leaving()

    async def on_partitions_assigned(self, assigned: Collection[KafkaTopicPartition]) -> None:
        """The share tells."""


def _note(place: Place) -> str:
    """What is committed along with an offset: which record was handled last."""
    return "" if place.checksum is None else f"{CHECKSUM}{place.checksum:08x}"


def _place(offset: int, noted: str | None) -> Place:
    """What a person or a tool has committed says nothing of records."""
    digits = (noted or "").removeprefix(CHECKSUM)
    is_ours = bool(noted) and len(digits) == CHECKSUM_DIGITS and set(digits) <= set(hexdigits)
    return Place(offset, int(digits, 16) if is_ours else None)
