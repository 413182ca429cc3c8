"""aiokafka's consumer, made steady: no record can stop the reading of its partition, and a failed poll loses nothing.
It gives our records, made straight from the bytes.

The name of a header is text to Kafka's clients, but no broker checks that. A single record with another kind of name
makes every poll of aiokafka fail at it, for ever, and drops what the same poll had taken from other partitions. So does
a batch whose bytes are damaged: here its partition is tried again by itself, while the others are read on (`Unread`).
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import KafkaConnectionError

from fallow.shared.log.kafka.offsets import TrueOffsets
from fallow.shared.log.kafka.unread import TRIES_MAX, Failure, TellingClient, Unread, failed_fetch
from fallow.shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT, Record, bytes_of, unreadable_at

COMMITTED = "read_committed"
"""The isolation level of every consumer of ours: a record of a transaction that was given up is never read."""

WRITTEN = "read_uncommitted"
"""For the question where a topic ends: by COMMITTED it ends where the first open transaction begins."""

STEP_WAIT_MS = 300
PREFIX_RECORDS = 500

Batches = dict[KafkaTopicPartition, list[Record]]
Positions = dict[KafkaTopicPartition, int]


class BatchRoom:
    """How much a poll may still take."""

    bytes_max = bytes_left = sys.maxsize

    @property
    def is_full(self) -> bool:
        """Whether it has come to its bytes."""
        return self.bytes_left <= 0


class SteadyConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka ships no types
    """Where the header of a record has a name that cannot be read, empty records with UNREADABLE_HEADER come in its
    place, for the dead letters. Of a partition whose batch cannot be read at all nothing comes from there on:
    `take_lasting` tells.
    """

    def __init__(self, *topics: str, tries_max: int = TRIES_MAX, **settings: Any) -> None:
        super().__init__(*topics, **{**settings, "isolation_level": COMMITTED})
        self.room = BatchRoom()
        self._unread = Unread(tries_max)

    async def start(self) -> None:
        """As aiokafka's."""
        await super().start()
        fetched = _Fetched(self)
        fetched.update(self._fetcher._records)  # noqa: SLF001 - see _Fetched
        self._fetcher._records = fetched  # noqa: SLF001
        self._fetcher._client = TellingClient(self._fetcher._client, self.cannot_read)  # noqa: SLF001

    async def reach(self, places: Iterable[KafkaTopicPartition]) -> None:
        """Learn which brokers lead these partitions and connect to them, as the first fetch would. A partition that is
        not there, or has no leader now, is passed over. Raises KafkaConnectionError.
        """
        if not await self._client.set_topics(sorted({tp.topic for tp in places})):
            raise KafkaConnectionError("no broker tells of its topics")
        leaders = {self._client.cluster.leader_for_partition(tp) for tp in places} - {None, -1}
        for leader in sorted(leaders):
            if not await self._client.ready(leader):
                raise KafkaConnectionError(f"broker {leader} does not answer")

    async def getmany(
        self,
        *partitions: KafkaTopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
        max_bytes: int = sys.maxsize,
    ) -> Batches:
        """As aiokafka's, but no further than to the record that makes it `max_bytes`. After any error the position is
        where it was.
        """
        self.room.bytes_max = max_bytes
        before = self.standing()
        if self._unread:
            timeout_ms = self._try_again(before, timeout_ms)
        try:
            return await self._take(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        except UnicodeDecodeError:
            return await self._step_over(before)
        except Exception:
            await self._go_back(before)
            raise

    async def _take(self, *partitions: KafkaTopicPartition, timeout_ms: int, max_records: int | None) -> Batches:
        self.room.bytes_left = self.room.bytes_max
        batches: Batches = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return batches

    def _try_again(self, standing: Positions, timeout_ms: int) -> int:
        """Let the partitions be fetched again whose pause is over. How long a poll may wait for the next of them."""
        now_s = asyncio.get_running_loop().time()
        self._unread.read(standing)
        for tp in self._unread.due(now_s):
            self._unread.is_tried(tp, now_s)
            self.resume(tp)
        wait_s = self._unread.wait_s(now_s)
        return timeout_ms if wait_s is None else min(timeout_ms, int(1000 * wait_s) + 1)

    def cannot_read(self, tp: KafkaTopicPartition, offset: int, error: Exception, behind: int | None = None) -> None:
        """A fetch has brought nothing of this partition that can be read: it rests for a moment."""
        if self.standing().get(tp) != offset or tp in self.paused():
            return
        self._unread.note(tp, offset, error, behind, asyncio.get_running_loop().time())
        self.pause(tp)

    def hold(self, tp: KafkaTopicPartition) -> None:
        """Read it no more, until it is resumed."""
        self._unread.forget(tp)
        self.pause(tp)

    def take_lasting(self) -> Failure | None:
        """A failure of one partition that some tries have not mended, once. Then it is tried as often anew."""
        failure = self._unread.take_lasting() if self._unread else None
        if failure is not None and failure.tp in self.assignment():
            self.resume(failure.tp)
        return failure

    def standing(self) -> Positions:
        """Where each partition stands. The public position() waits for those that do not stand anywhere yet."""
        assignment = self._subscription.subscription and self._subscription.subscription.assignment
        states = {tp: assignment.state_value(tp) for tp in assignment.tps} if assignment else {}
        return {tp: state.position for tp, state in states.items() if state.has_valid_position}

    async def _go_back(self, before: Positions) -> None:
        """Undo what a failed poll has taken and dropped, in those partitions that are still ours."""
        for tp in sorted(self.assignment()):
            if tp in before:
                self.seek(tp, before[tp])
            elif tp in self.standing():
                await self._go_to_the_start(tp)

    async def _go_to_the_start(self, tp: KafkaTopicPartition) -> None:
        """For a partition that was assigned during the failed poll, of which nothing was ever handed out.

        Not seek_to_committed(), which stays where it is when nothing, or zero, is committed.
        """
        committed = await self.committed(tp)
        if committed is None:
            await self.seek_to_beginning(tp)
        else:
            self.seek(tp, committed)

    async def _step_over(self, before: Positions) -> Batches:
        """Read each partition by itself; around what cannot be read, give the good records and a stand-in."""
        await self._go_back(before)
        try:
            for tp, start in sorted(self.standing().items()):
                try:
                    found = await self._take(tp, timeout_ms=STEP_WAIT_MS, max_records=PREFIX_RECORDS)
                except UnicodeDecodeError:
                    self.seek(tp, start)
                    found = {tp: await self._around_the_bad_batch(tp)}
                if found:
                    return found
        except Exception:
            await self._go_back(before)
            raise
        return {}

    async def _around_the_bad_batch(self, tp: KafkaTopicPartition) -> list[Record]:
        found: list[Record] = []
        while True:
            try:
                one = await self._take(tp, timeout_ms=STEP_WAIT_MS, max_records=1)
            except UnicodeDecodeError:
                # The whole batch is decoded on the way to any record of it, so what follows in it is unreadable too.
                bad = await self.position(tp)
                found.append(unreadable_at((tp.topic, tp.partition), bad))
                self.seek(tp, bad + 1)
                continue
            found.extend(one.get(tp, []))
            if not one or (len(found) > 1 and _is_stand_in(found[-2])):
                return found


class _Fetched(OrderedDict[KafkaTopicPartition, Any]):
    """What was fetched and not yet taken. Each partition's records come out as ours, not as aiokafka's first.

    This reaches into aiokafka 0.14, whose fetcher makes a record of 11 fields from each that it reads: it costs more
    than all the rest of the reading. The contract suite pins that ours come out. And it bounds a poll in records only,
    of which a compressed batch of a few kilobytes may hold hundreds of megabytes.
    """

    def __init__(self, consumer: SteadyConsumer) -> None:
        super().__init__()
        self._consumer = consumer

    def __setitem__(self, tp: KafkaTopicPartition, fetched: Any) -> None:
        if type(fetched) is FetchResult:
            records = fetched._partition_records  # noqa: SLF001 - see above
            records._consumer_record, records._records = _record, TrueOffsets(records._records)  # noqa: SLF001
            fetched.getall = partial(_getall, fetched, self._consumer)
        elif (error := failed_fetch(fetched)) is not None:
            fetched.check_raise = partial(self._refused, tp, self._consumer.standing().get(tp), error)
        super().__setitem__(tp, fetched)

    def _refused(self, tp: KafkaTopicPartition, offset: int | None, error: Exception) -> None:
        """In the place of raising the error, which would end the poll."""
        if offset is not None and tp in self._consumer.assignment():
            self._consumer.seek(tp, offset)
            self._consumer.cannot_read(tp, offset, error)


def _getall(fetched: Any, consumer: SteadyConsumer, max_records: int | None = None) -> list[Record]:
    """What can be read of it. Where nothing of it can, the consumer is told."""
    found: list[Record] = []
    try:
        return _readable(fetched, consumer.room, found, max_records)
    except UnicodeDecodeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the reading of damaged bytes may come to
        records, fetched._partition_records = fetched._partition_records, None  # noqa: SLF001
        tp, offset = fetched._topic_partition, records.next_fetch_offset  # noqa: SLF001
        fetched._assignment.state_value(tp).consumed_to(offset)  # noqa: SLF001
        if not found:
            consumer.cannot_read(tp, offset, error, records._records.behind())  # noqa: SLF001
        return found


def _readable(fetched: Any, room: BatchRoom, found: list[Record], max_records: int | None) -> list[Record]:
    """As aiokafka's FetchResult has it, and no further than the room allows. What was read before an error is
    `found`.
    """
    if not fetched.check_assignment(fetched._topic_partition) or not fetched.has_more():  # noqa: SLF001 - see _Fetched
        return found
    if room.is_full:
        return found
    for record in fetched._partition_records:  # noqa: SLF001
        found.append(record)
        room.bytes_left -= bytes_of(record)
        if len(found) == max_records or room.is_full:
            fetched._update_position()  # noqa: SLF001
            return found
    fetched._update_position()  # noqa: SLF001
    fetched._partition_records = None  # noqa: SLF001
    return found


def _record(tp: KafkaTopicPartition, found: Any) -> Record:
    """Ours, of one that was read. A header without a value becomes an empty one: other clients may write null."""
    headers = tuple(found.headers)
    for header in headers:
        if header[1] is None:
            headers = tuple((name, value or b"") for name, value in headers)
            break
    return Record(tp[0], tp[1], found.offset, found.key, found.value, headers, found.timestamp)


def _is_stand_in(record: Record) -> bool:
    return record.key is None and record.value is None and record.headers[:1] == ((UNREADABLE_HEADER, UNREADABLE_TEXT),)
