"""A batch that cannot be read: what of a fetch is given all the same, what is told, and when it counts as lasting."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchError, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException, NoOffsetForPartitionError, RecordTooLargeError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from fallow.shared.log.kafka.consumer import BatchRoom, _Fetched
from fallow.shared.log.kafka.unread import TRY_AGAIN_S, TellingClient, Unread
from tests.log.worlds.raw_batches import raw_batch

TP = TopicPartition("t", 0)


class Reading:
    """A consumer that stands at an offset of one partition; also its assignment, and the state of that."""

    active, paused = True, False

    def __init__(self, position: int = 0) -> None:
        self.position, self.room = position, BatchRoom()
        self.told: list[tuple[int, str, int | None]] = []

    def state_value(self, _: TopicPartition) -> Reading:
        return self

    def consumed_to(self, position: int) -> None:
        self.position = position

    def standing(self) -> dict[TopicPartition, int]:
        return {TP: self.position}

    def assignment(self) -> set[TopicPartition]:
        return {TP}

    def seek(self, _: TopicPartition, offset: int) -> None:
        self.position = offset

    def cannot_read(self, _: TopicPartition, offset: int, error: Exception, behind: int | None = None) -> None:
        self.told.append((offset, type(error).__name__, behind))

    def fetch(self, *batches: bytearray) -> list[int]:
        """The offsets of what is taken of these."""
        fetched: Any = _Fetched(self)  # type: ignore[arg-type]
        records = MemoryRecords(bytes(bytearray().join(batches)))
        read = PartitionRecords(TP, records, [], self.position, None, None, True, READ_COMMITTED)
        fetched[TP] = FetchResult(TP, assignment=self, partition_records=read, backoff=0)
        return [record.offset for record in fetched[TP].getall(500)]


def batches(bad: int | None, count: int = 4) -> list[bytearray]:
    """Of two records each; one byte of the last value of the bad one is another."""
    found = [raw_batch([b"value-a", b"value-b"], [0, 1], base=2 * number) for number in range(count)]
    if bad is not None:
        found[bad][found[bad].index(b"value-b")] ^= 0xFF
    return found


def test_what_stands_before_a_bad_batch_is_given_and_then_its_place_is_told() -> None:
    reading = Reading()
    assert reading.fetch(*batches(1)) == [0, 1]
    assert (reading.position, reading.told) == (2, [])
    assert reading.fetch(*batches(1)) == []
    assert (reading.position, reading.told) == (2, [(2, "CorruptRecordException", 4)])


def test_where_the_next_batch_begins_is_told_by_the_bad_one_where_it_is_the_last_of_the_fetch() -> None:
    reading = Reading(6)
    assert reading.fetch(*batches(3)[3:]) == []
    assert reading.told == [(6, "CorruptRecordException", 8)]


def test_of_several_bad_batches_the_first_whole_one_behind_them_is_told() -> None:
    reading, both = Reading(2), batches(1)[1:2] + batches(2)[2:]
    assert reading.fetch(*both) == []
    assert reading.told == [(2, "CorruptRecordException", 6)]


def test_bytes_that_are_no_batch_at_all_are_told_without_what_is_behind_them() -> None:
    reading, found = Reading(2), batches(None)
    found[1][8:12] = (5).to_bytes(4, "big")
    assert reading.fetch(*found[1:]) == []
    assert reading.told == [(2, "CorruptRecordException", None)]


def test_an_answer_of_the_broker_that_concerns_one_partition_ends_no_poll() -> None:
    reading = Reading(5)
    fetched: Any = _Fetched(reading)  # type: ignore[arg-type]
    fetched[TP] = FetchError(error=RecordTooLargeError("t"), backoff=0)
    reading.position = 6  # aiokafka passes over one
    fetched[TP].check_raise()
    assert (reading.position, reading.told) == (5, [(5, "RecordTooLargeError", None)])
    fetched[TP] = FetchError(error=NoOffsetForPartitionError(TP), backoff=0)
    with pytest.raises(NoOffsetForPartitionError):
        fetched[TP].check_raise()


def fail(unread: Unread, times: int, offset: int = 3, error: Exception | None = None) -> None:
    for number in range(times):
        unread.note(TP, offset, error or CorruptRecordException("x"), None, float(number))


def test_a_failure_lasts_after_some_tries_at_one_place() -> None:
    unread = Unread(tries_max=3)
    fail(unread, 2)
    fail(unread, 2, offset=4)
    assert unread.take_lasting() is None
    fail(unread, 1, offset=4)
    failure = unread.take_lasting()
    assert failure is not None
    assert (failure.tp, failure.offset, bool(unread)) == (TP, 4, False)


def test_a_partition_is_tried_again_after_a_pause_and_forgotten_once_it_has_moved() -> None:
    unread = Unread()
    fail(unread, 1)
    assert (unread.due(TRY_AGAIN_S / 2), unread.wait_s(0.0)) == ([], TRY_AGAIN_S)
    assert unread.due(TRY_AGAIN_S) == [TP]
    unread.is_tried(TP, TRY_AGAIN_S)
    assert unread.due(TRY_AGAIN_S) == []
    unread.read({TP: 3})
    assert unread
    unread.read({TP: 4})
    assert not unread


class Answering:
    """A broker's answers to a fetch of partitions 0 to 2 from offset 5: code, stable offset and bytes."""

    API_VERSION = 4

    def __init__(self, *answers: tuple[int, int, bytes]) -> None:
        found: list[Any] = [(n, code, 9, stable, [], some) for n, (code, stable, some) in enumerate(answers)]
        self.topics = [("t", found)]

    async def send(self, _node: int, _request: object) -> Answering:
        return self


@pytest.mark.parametrize(
    ("code", "stable", "some", "told"),
    [
        (2, 9, b"", ["CorruptRecordException"]),
        (0, 9, b"", ["NothingComes"]),
        (0, 5, b"", []),
        (0, 9, b"x", []),
        (6, 9, b"", []),
    ],
)
async def test_what_a_broker_cannot_read_itself_is_told(code: int, stable: int, some: bytes, told: list[str]) -> None:
    found: list[tuple[int, int, str]] = []
    client = TellingClient(
        Answering((0, 5, b""), (code, stable, some)),
        lambda tp, offset, error: found.append((tp.partition, offset, type(error).__name__)),
    )
    await client.send(1, FetchRequest(100, 1, 1_000, 1, [("t", [(0, 5, 100), (1, 5, 100)])]))
    assert found == [(1, 5, name) for name in told]
