"""What this project needs of a log, at the level of bytes: records appended to partitions, read in order, and owned.

Nothing here knows what a record means. Two implementations: `kafka.KafkaLog` and `memory.MemoryLog`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, Protocol

import msgspec

TopicPartition = tuple[str, int]
"""The full topic name, namespace included, and the number of a partition."""

Headers = tuple[tuple[str, bytes], ...]
"""Names and values in the order they were written; a name may occur more than once."""

RECORD_BYTES_MAX = 1_048_000
"""The largest record that is sent, key and headers included: just below the broker's default message.max.bytes."""

TOPIC_BYTES = 1_048_576
"""What a topic has to take (max.message.bytes) for every record that is sent: with what Kafka puts around it."""

HEADERS_MAX = 1_000
"""Of a record with more headers nothing is read: an empty one takes two bytes of a record, and as long as any other."""

HEADER_BYTES = 64
"""What a header takes in memory besides its name and its value, at least."""

UNREADABLE_HEADER = "unreadable"
"""The only header of the record that stands for one that cannot be read; its key and value are absent."""

UNREADABLE_TEXT = b"a header of this record, or of its batch, has a name that is not UTF-8"


class Record(msgspec.Struct, frozen=True):
    """One record as it stands in the log. `timestamp_ms` is the broker's wall clock when the record was appended: every
    topic of ours is stamped by the broker (`shared/log/admin/topics.py`). It bounds the sequence numbers of
    what nodes say, and tells a clock that is wrong.

    A struct, as Outgoing is: of these thousands are made in a second.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    said: Any = None
    """What the record says, from a log that has decoded it already; None from Kafka's."""


def unreadable_at(tp: TopicPartition, offset: int) -> Record:
    """In the place of a record that cannot be read."""
    return Record(*tp, offset, None, None, ((UNREADABLE_HEADER, UNREADABLE_TEXT),), 0)


def bytes_of(record: Record) -> int:
    """How much of a batch's room a record takes: its bytes, and HEADER_BYTES for each header, which costs also where
    it is empty.
    """
    headers = record.headers
    size_bytes = len(record.key or b"") + len(record.value or b"") + HEADER_BYTES * len(headers)
    return size_bytes + sum(map(len, chain.from_iterable(headers)))


class Outgoing(msgspec.Struct, frozen=True):
    """One record to be written. Without `partition` the key chooses it, by Kafka's own murmur2 partitioner.

    At least one of key and value must be there: Kafka's client refuses a record that has neither.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no log would take, where it is made and not where it is sent."""
        if self.key is None and self.value is None:
            raise ValueError(f"record for {self.topic}: key and value are both absent; one of them must be there")


@dataclass(frozen=True, slots=True)
class Appended:
    """The record is in the log for good, at this offset. `stamped_ms` is the broker's wall clock when it wrote the
    record, None where the topic keeps the sender's time or the broker has no clock.
    """

    offset: int
    stamped_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AppendUnknown:
    """No proof either way: the record may be there, may come to be there a little later, or never. Read on and look."""

    reason: str


class Refusal(StrEnum):
    """Why the log refuses a record for good: to send the same record again is of no use until a person mends it."""

    NOT_ALLOWED = "not_allowed"
    TIMESTAMP = "timestamp"
    TOO_LARGE = "too_large"
    INVALID = "invalid_record"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The log refuses the record for good. An earlier try of the same call may be there all the same (the client
    repeats what timed out): read on and look, as after AppendUnknown, but do not repeat it at once.
    """

    code: Refusal
    reason: str


class LogUnavailable(Exception):
    """The log did not answer within its bound. Any part of what was asked may have happened; back off and try again."""


class NoTopics(LogUnavailable):
    """The log answers, and has none of these topics, or none that this user may see."""

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__(no_topics(topics, "Kafka"))


def no_topics(topics: Collection[str], who: str = "it") -> str:
    """What is told of topics that are not there: which ones, and what makes them anew."""
    return f"{who} has no topic {', '.join(topics)}. Run: fallow topics create"


class LogRefused(LogUnavailable):
    """The log refuses a record for good, and any part of the others may be there. For its caller the log is away until
    a person grants a right or changes a setting: back off, and say so.
    """

    def __init__(self, code: Refusal, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RecordTooLarge(LogRefused):
    """The record exceeds what the log takes: it is certainly not there, and sending it again would not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(Refusal.TOO_LARGE, reason)


def refusal(code: Refusal, reason: str) -> LogRefused:
    """The error that says so: of its own kind where the record is too large."""
    return RecordTooLarge(reason) if code is Refusal.TOO_LARGE else LogRefused(code, reason)


AppendAnswer = Appended | AppendUnknown | AppendRefused


class LogTruncated(Exception):
    """The offset asked for is not in the log: cleaned away (below `begin`), or never written (above `end`)."""

    def __init__(self, tp: TopicPartition, *, asked: int, begin: int, end: int) -> None:
        super().__init__(f"{tp[0]}/{tp[1]}: offset {asked} was asked for, it begins at {begin} and ends before {end}")
        self.tp = tp
        self.asked = asked
        self.begin = begin
        self.end = end


class UnreadableRecords(LogTruncated):
    """The records from the offset asked for on are in the log and cannot be read, however often that is tried: their
    batch is damaged, or refused to this reader. `begin` is the next offset that can be read, `end` where none can be
    told.
    """

    def __init__(self, tp: TopicPartition, *, asked: int, begin: int, end: int, why: str) -> None:
        super().__init__(tp, asked=asked, begin=begin, end=end)
        self.why = why

    def __str__(self) -> str:
        """What a person reads of it."""
        return cannot_be_read(self.tp, self.asked, self.begin, self.end, self.why)


def cannot_be_read(tp: TopicPartition, offset: int, begin: int, end: int, why: str) -> str:
    """One sentence of a place that cannot be read, and of where reading could go on."""
    behind = f"from offset {begin} on it can be" if begin < end else f"nor, as far as is known, anything up to {end}"
    return f"{tp[0]}/{tp[1]} cannot be read at offset {offset} ({why}), {behind}"


class Reader(Protocol):
    """Reads partitions that it was told to read, from the offsets that it was told. Belongs to no group."""

    async def start(self) -> None:
        """Connect. Raises LogUnavailable within a bound."""

    async def stop(self) -> None:
        """Let go of all connections. May be called twice."""

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        """Return what is there, at once; wait up to `wait_ms` while there is nothing, and wake when something comes.

        Order is kept within each partition. An empty list also stands for "the log is away": that is the business of
        health checks. Raises LogTruncated when a position is not in the log, UnreadableRecords when what stands there
        cannot be read, also after some tries; nothing is lost by that, `seek` and go on.
        """

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on with `offset` at the next poll. Raises KeyError for a partition that is not read here."""

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to be returned, of each partition."""


class Member(Protocol):
    """Membership of a group that shares the partitions of one topic: who should own what, now. A hint, not a fence."""

    async def start(self) -> None:
        """Begin to take part; a first share may be owned on return, or later. Raises LogUnavailable within a bound."""

    async def stop(self) -> None:
        """Leave, so that the others take over at once. May be called twice."""

    def owned(self) -> frozenset[int]:
        """The partitions that should be ours now."""

    def decline(self, partitions: frozenset[int]) -> None:
        """Own none of these from the next rebalance on, which this asks for: another member gets them, or none where
        all decline. An empty set takes them all again.
        """

    async def changed(self) -> frozenset[int]:
        """Wait until owned() has changed since the last answer (at first: since nothing was owned) and return it.

        Several changes between two calls come as one. While members rearrange themselves nothing is owned.
        """


class Log(Protocol):
    """One handle onto the log; each process has one."""

    async def start(self) -> None:
        """Connect. Raises LogUnavailable within a bound."""

    async def stop(self) -> None:
        """Let go of all connections; what was not acknowledged by now is unknown. May be called twice."""

    async def publish(self, messages: Sequence[Outgoing]) -> int | None:
        """Write all, in their order within each partition; return when all are acknowledged: the broker's wall clock
        when it wrote the last of them, as far as it says.

        Raises LogUnavailable, LogRefused, RecordTooLarge: any part of them may then be there.
        """

    async def append(self, message: Outgoing) -> AppendAnswer:
        """Write one record and say at which offset it is. Never written twice."""

    async def begin_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that can still be read, of each. Raises LogUnavailable, also for a missing partition."""

    async def end_offsets(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read, of each: where a transaction is open, its first offset.
        Raises LogUnavailable, also for a missing partition.
        """

    async def written_ends(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record will get, of each. While a transaction is open, this is beyond what can be
        read. Raises LogUnavailable, also for a missing partition.
        """

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """The last committed record before this offset, of each partition that holds one there and reaches that far:
        what a transaction leaves behind is none. Raises LogUnavailable.

        For a look now and then: it costs a fetch for each partition, and a few where a transaction ended there.
        """

    async def stands_before(self, tp: TopicPartition, offset: int) -> Record | None:
        """What `last_before` tells, of one partition, for a writer that waits for it before each append after a rest:
        within the bound of an append, by what is kept for this partition alone. No look at another one holds it up.
        """

    async def first_from(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        """The first committed record at this offset or behind it, of each partition that has one. Raises
        LogUnavailable. It costs as much as `last_before`.
        """

    async def first_since(self, tp: TopicPartition, timestamp_ms: int) -> int | None:
        """The offset of the first record that the broker stamped at this time or later; None when there is none yet.
        Raises LogUnavailable.
        """

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Forget the records below `offset` for good. Raises LogUnavailable."""

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 when there is no such topic. Raises LogUnavailable."""

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """The number of partitions of each of these topics, in their order, asked at once. Raises LogUnavailable."""

    async def topic_record_bytes_max(self, topic: str) -> int | None:
        """The largest record that the topic takes now, by its own setting (max.message.bytes); None where the broker
        does not tell. Raises LogUnavailable.
        """

    def reader(self, positions: Mapping[TopicPartition, int], *, patient_ms: int = 0) -> Reader:
        """A reader of these partitions, from these offsets; not started.

        With `patient_ms` a record may be held back for so long while little has come, so that a reader for which no
        process waits for is woken seldom and then takes much at a time. A backlog comes at once in any case. Where
        several partitions are read, a record may be held back twice as long.
        """

    def member(self, group: str, topic: str) -> Member:
        """A member of the group that shares the (empty) topic; not started."""
