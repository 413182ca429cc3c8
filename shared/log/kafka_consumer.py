"""aiokafka's consumer, made steady: no record can stop the reading of its partition, and a failed poll loses nothing.
It gives our records, made straight from the bytes.

The name of a header is text to Kafka's clients, but no broker checks that. A single record with another kind of name
makes every poll of aiokafka fail at it, for ever, and drops what the same poll had taken from other partitions.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.consumer.fetcher import FetchResult

from shared.log.kafka_offsets import TrueOffsets
from shared.log.port import UNREADABLE_HEADER, UNREADABLE_TEXT, Record, bytes_of

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

    bytes_most = bytes_left = sys.maxsize

    @property
    def is_full(self) -> bool:
        """Whether it has come to its bytes."""
        return self.bytes_left <= 0


class SteadyConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka ships no types
    """Where a batch cannot be read, empty records with UNREADABLE_HEADER come in its place, for the dead letters."""

    def __init__(self, *topics: str, **settings: Any) -> None:
        super().__init__(*topics, **{**settings, "isolation_level": COMMITTED})
        self.room = BatchRoom()

    async def start(self) -> None:
        """As aiokafka's."""
        await super().start()
        fetched = _Fetched(self.room)
        fetched.update(self._fetcher._records)  # noqa: SLF001 - see _Fetched
        self._fetcher._records = fetched  # noqa: SLF001

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
        self.room.bytes_most = max_bytes
        before = self.standing()
        try:
            return await self._take(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        except UnicodeDecodeError:
            return await self._step_over(before)
        except Exception:
            await self._go_back(before)
            raise

    async def _take(self, *partitions: KafkaTopicPartition, timeout_ms: int, max_records: int | None) -> Batches:
        self.room.bytes_left = self.room.bytes_most
        batches: Batches = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return batches

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
                found.append(_stand_in(tp, bad))
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

    def __init__(self, room: BatchRoom) -> None:
        super().__init__()
        self._room = room

    def __setitem__(self, tp: KafkaTopicPartition, fetched: Any) -> None:
        if type(fetched) is FetchResult:
            records = fetched._partition_records  # noqa: SLF001 - see above
            records._consumer_record, records._records = _record, TrueOffsets(records._records)  # noqa: SLF001
            fetched.getall = partial(_getall, fetched, self._room)
        super().__setitem__(tp, fetched)


def _getall(fetched: Any, room: BatchRoom, max_records: int | None = None) -> list[Record]:
    """As aiokafka's FetchResult has it, and no further than the room allows."""
    found: list[Record] = []
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


def _stand_in(tp: KafkaTopicPartition, offset: int) -> Record:
    return Record(tp.topic, tp.partition, offset, None, None, ((UNREADABLE_HEADER, UNREADABLE_TEXT),), 0)


def _is_stand_in(record: Record) -> bool:
    return record.key is None and record.value is None and record.headers[:1] == ((UNREADABLE_HEADER, UNREADABLE_TEXT),)
