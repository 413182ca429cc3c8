"""The log within one process: for tests and simulation. Deterministic, and held to the same contract suite as Kafka's.

One MemoryBroker stands for the cluster; each simulated process has its own MemoryLog onto it. The broker can be told to
be away, to lose acknowledgements and to forget old records, as a real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.log.memory.member import MemoryGroup, MemoryMember
from fallow.shared.log.memory.reader import MemoryReader
from fallow.shared.log.port import (
    RECORD_BYTES_MAX,
    TOPIC_BYTES,
    AppendAnswer,
    Appended,
    AppendRefused,
    AppendUnknown,
    LogRefused,
    LogUnavailable,
    Outgoing,
    Reader,
    Record,
    RecordTooLarge,
    Refusal,
    TopicPartition,
    refusal,
    unreadable_at,
)


@dataclass(slots=True)
class Partition:
    """Records in order; `begin` is the offset of the first one that is still kept."""

    begin: int = 0
    records: list[Record] = field(default_factory=list)
    markers: set[int] = field(default_factory=set)
    """Offsets that no reader is shown: the ends of transactions, which take an offset as a record does."""

    damaged: set[int] = field(default_factory=set)
    """Offsets that cannot be read. Those that follow one another are one batch."""

    in_transaction: int = 0
    """So many records of an open transaction are written behind the end."""

    held_from: int | None = None
    """Nothing from this offset on can be read: it was written behind records of an open transaction."""

    @property
    def written_end(self) -> int:
        """The offset that the next record gets."""
        return self.begin + len(self.records)

    @property
    def end(self) -> int:
        """Up to here it can be read."""
        return self.written_end if self.held_from is None else self.held_from

    def last_before(self, offset: int) -> Record | None:
        """The last record before this offset; None also where the partition does not reach that far."""
        before = range(offset - 1, self.begin - 1, -1) if offset <= self.end else ()
        at = next((at for at in before if at not in self.markers), None)
        return None if at is None or at in self.damaged else self.records[at - self.begin]

    def first_from(self, offset: int) -> Record | None:
        """The first record at this offset or behind it."""
        behind = range(max(offset, self.begin), self.end)
        at = next((at for at in behind if at not in self.markers), None)
        if at is None:
            return None
        found = self.records[at - self.begin]
        return unreadable_at((found.topic, found.partition), at) if at in self.damaged else found


class MemoryBroker:
    """What the cluster holds: topics, and the groups on them. All calls are synchronous and total."""

    def __init__(self, now_ms: Callable[[], int] | None = None, record_bytes_max: int = RECORD_BYTES_MAX) -> None:
        """`now_ms` stamps records; without it every record has the time 0, and an append is told no time.

        `record_bytes_max` counts key, value and headers.
        """
        self.is_away = False
        self.acknowledgements_to_lose = 0
        self.refuses: dict[str, Refusal] = {}
        """Topics to which nothing may be written, and why."""
        self.takes_bytes: dict[str, int] = {}
        """Topics whose records may have no more bytes than this: fewer than others."""
        self.now_ms: Callable[[], int | None] = now_ms or (lambda: None)
        self._record_bytes_max = record_bytes_max
        self._topics: dict[str, list[Partition]] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._keyless = 0
        self._arrival = asyncio.Event()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or let an existing one grow. Raises ValueError for a shrink."""
        present = self._topics.setdefault(topic, [])
        if partitions < max(1, len(present)):
            raise ValueError(f"{topic}: partitions {partitions}, must be at least {max(1, len(present))}")
        present.extend(Partition() for _ in range(partitions - len(present)))

    def delete_topic(self, topic: str) -> None:
        """Delete the topic with all its records. Raises KeyError for one that is not there."""
        del self._topics[topic]

    def topics(self) -> dict[str, int]:
        """Each topic's number of partitions."""
        return {topic: len(partitions) for topic, partitions in sorted(self._topics.items())}

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises LogUnavailable when there is none, as Kafka's clients do in the end."""
        partitions = self._topics.get(tp[0], [])
        if not 0 <= tp[1] < len(partitions):
            raise LogUnavailable(f"{tp[0]} has no partition {tp[1]}, only {len(partitions)}")
        return partitions[tp[1]]

    def write(self, message: Outgoing) -> int:
        """Append one record; return its offset. Raises LogRefused, RecordTooLarge, LogUnavailable."""
        if message.topic in self.refuses:
            code = self.refuses[message.topic]
            raise refusal(code, f"a record for {message.topic} is refused ({code})")
        self._check_size(message)
        tp = (message.topic, self._choose(message))
        partition = self.partition(tp)
        if partition.in_transaction and partition.held_from is None:
            partition.held_from = partition.written_end
            for _ in range(partition.in_transaction):
                self.write_marker(tp)
        offset = partition.written_end
        partition.records.append(
            Record(*tp, offset, message.key, message.value, tuple(message.headers), self.now_ms() or 0)
        )
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()
        return offset

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Forget the records below `offset`, as retention does."""
        partition = self.partition(tp)
        kept_from = min(max(offset, partition.begin), partition.end)
        del partition.records[: kept_from - partition.begin]
        partition.begin = kept_from

    def damage(self, tp: TopicPartition, *offsets: int) -> None:
        """Make the records at these offsets unreadable, as a disk may do."""
        self.partition(tp).damaged.update(offsets)

    def write_marker(self, tp: TopicPartition) -> None:
        """Take one offset as the end of a transaction does: readers step over it."""
        partition = self.partition(tp)
        partition.markers.add(partition.written_end)
        partition.records.append(Record(*tp, partition.written_end, None, None, (), self.now_ms() or 0))

    def hold(self, tp: TopicPartition, records: int) -> None:
        """A transaction with so many records is open, until it is held with none. What is written meanwhile stands
        behind its records, which are aborted then, and cannot be read until it is over.
        """
        partition = self.partition(tp)
        partition.in_transaction = records
        if not records:
            partition.held_from = None
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()

    def cut(self, tp: TopicPartition, offset: int) -> None:
        """Lose the records from `offset` on, though they were acknowledged."""
        partition = self.partition(tp)
        del partition.records[max(0, offset - partition.begin) :]
        partition.begin = min(partition.begin, offset)
        partition.markers -= {marker for marker in partition.markers if marker >= offset}
        partition.damaged -= {at for at in partition.damaged if at >= offset}

    def group(self, name: str, topic: str) -> MemoryGroup:
        """The group's membership, created on first use. One group has one topic here."""
        return self._groups.setdefault(name, MemoryGroup(lambda: len(self._topics.get(topic, []))))

    def arrival(self) -> asyncio.Event:
        """Set when the next record is written."""
        return self._arrival

    def _choose(self, message: Outgoing) -> int:
        partitions = len(self._topics.get(message.topic, []))
        if message.partition is not None:
            return message.partition
        if message.key is not None and partitions:
            return partition_of(message.key, partitions)
        self._keyless += 1
        return self._keyless % max(1, partitions)

    def _check_size(self, message: Outgoing) -> None:
        headers = sum(len(name.encode()) + len(value) for name, value in message.headers)
        size = len(message.key or b"") + len(message.value or b"") + headers
        most = self.takes_bytes.get(message.topic, self._record_bytes_max)
        if size > most:
            raise RecordTooLarge(f"record for {message.topic}: {size} bytes, at most {most}")

    def topic_record_bytes_max(self, topic: str) -> int:
        """How many bytes a record of the topic may have, as its setting says."""
        return self.takes_bytes.get(topic, TOPIC_BYTES)


class MemoryLog:
    """One process's handle onto a MemoryBroker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def start(self) -> None:
        """Raises LogUnavailable while the broker is away."""
        self._reach()

    async def stop(self) -> None:
        """Nothing is held."""

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """All at once, in order."""
        self._reach()
        for message in messages:
            self._broker.write(message)
        return self._broker.now_ms()

    async def append(self, message: Outgoing) -> AppendAnswer:
        """Unknown while the broker is away, or when an acknowledgement is to be lost (then the record is there)."""
        try:
            self._reach()
            offset = self._broker.write(message)
        except LogRefused as error:
            return AppendRefused(error.code, str(error))
        except LogUnavailable as error:
            return AppendUnknown(reason=str(error))
        if self._broker.acknowledgements_to_lose > 0:
            self._broker.acknowledgements_to_lose -= 1
            return AppendUnknown(reason="the acknowledgement was lost")
        return Appended(offset=offset, stamped_ms=self._broker.now_ms())

    async def begin_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says."""
        self._reach()
        return {tp: self._broker.partition(tp).begin for tp in tps}

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says."""
        self._reach()
        return {tp: self._broker.partition(tp).end for tp in tps}

    async def written_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As the port says."""
        self._reach()
        partitions = {tp: self._broker.partition(tp) for tp in tps}
        return {
            tp: each.written_end + (each.in_transaction if each.held_from is None else 0)
            for tp, each in partitions.items()
        }

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says."""
        self._reach()
        found = {tp: self._broker.partition(tp).last_before(offset) for tp, offset in offsets.items()}
        return {tp: record for tp, record in found.items() if record is not None}

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """As the port says."""
        return (await self.last_before({tp: offset})).get(tp)

    async def first_from(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """As the port says."""
        self._reach()
        found = {tp: self._broker.partition(tp).first_from(offset) for tp, offset in offsets.items()}
        return {tp: record for tp, record in found.items() if record is not None}

    async def first_since(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """As the port says."""
        self._reach()
        records = self._broker.partition(tp).records
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), None)

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        self._reach()
        self._broker.delete_before(tp, offset)

    async def partitions(self, topic: str) -> int:
        """As the port says."""
        self._reach()
        return self._broker.topics().get(topic, 0)

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """As the port says."""
        return {topic: await self.partitions(topic) for topic in topics}

    async def topic_record_bytes_max(self, topic: str) -> int | None:
        """As the port says."""
        self._reach()
        return self._broker.topic_record_bytes_max(topic)

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:  # noqa: ARG002
        """Any number of readers, each with its own positions. Nothing is held back: a wake-up costs nothing here."""
        return MemoryReader(self._broker, positions)

    def member(self, group: str, topic: str) -> MemoryMember:
        """Partitions go round robin over the members in the order in which they joined."""
        return MemoryMember(self._broker.group(group, topic))

    def _reach(self) -> None:
        if self._broker.is_away:
            raise LogUnavailable("the broker is away")
