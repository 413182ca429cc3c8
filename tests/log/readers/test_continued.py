"""A reader that goes on behind what was read compares the record before it in the stream that it reads on."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.log.inputs.continued import ContinuedReader
from fallow.shared.log.inputs.losses import OtherRecord
from fallow.shared.log.machine.losses import Place
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import LogTruncated, Outgoing, Record, TopicPartition
from fallow.shared.log.reading import input_checksum
from tests.hypothesis_profile import reaches

TP: TopicPartition = ("jobs", 0)
OTHER: TopicPartition = ("operations", 0)


def filled(count: int, what: str = "old") -> MemoryBroker:
    broker = MemoryBroker()
    for topic, _ in (TP, OTHER):
        broker.create_topic(topic, 1)
    write(broker, TP, what, count)
    return broker


def write(broker: MemoryBroker, tp: TopicPartition, what: str, count: int) -> None:
    for _ in range(count):
        value = f"{what}-{broker.partition(tp).end}".encode()
        broker.write(Outgoing(tp[0], value, partition=tp[1]))


def place_at(next_offset: int, what: str = "old") -> Place:
    if not next_offset:
        return Place(0)
    value = f"{what}-{next_offset - 1}".encode()
    return Place(next_offset, input_checksum(Record(*TP, next_offset - 1, None, value, (), timestamp_ms=0)))


async def read_all(reader: ContinuedReader, polls: int = 4) -> list[bytes | None]:
    await reader.start()
    found = [record.value for _ in range(polls) for record in await reader.poll(2, wait_ms=0)]
    await reader.stop()
    return found


@given(count=st.integers(0, 6), read=st.integers(0, 6), is_known=st.booleans(), deleted=st.integers(0, 6))
def test_a_topic_that_goes_on_is_handed_out_from_its_place(
    count: int, read: int, *, is_known: bool, deleted: int
) -> None:
    read, deleted = min(read, count), min(read, deleted, count)
    broker = filled(count)
    reaches("records before a place are deleted, and others stand behind it", deleted > 0 and read < count)
    place = place_at(read) if is_known else Place(read)
    reader = ContinuedReader(MemoryLog(broker), {TP: read}, {TP: place})
    assert reader.positions() == {TP: read}
    broker.delete_before(TP, deleted)
    assert asyncio.run(read_all(reader, 8)) == [f"old-{offset}".encode() for offset in range(read, count)]
    assert reader.positions() == {TP: count}


@given(read=st.integers(1, 5), kept=st.integers(0, 4), more=st.integers(0, 9), what=st.sampled_from(["old", "new"]))
def test_no_record_of_a_topic_that_was_cut_and_filled_anew_is_handed_out(
    read: int, kept: int, more: int, what: str
) -> None:
    """However far it was filled, once the reader is there, and though the same is said once more: who cancels a job
    twice writes the same bytes twice.
    """
    broker, kept = filled(read), min(kept, read - 1)
    reader = ContinuedReader(MemoryLog(broker), {TP: read}, {TP: place_at(read)})
    broker.cut(TP, kept)
    broker.now_ms = lambda: 1
    write(broker, TP, what, more)
    end = kept + more
    reaches("a topic that was cut is filled beyond the place of its reader", end >= read)
    if end < read - 1:
        with pytest.raises(LogTruncated) as told:
            asyncio.run(read_all(reader))
        assert (told.value.asked, told.value.end) == (read, end)
    elif end == read - 1:
        assert asyncio.run(read_all(reader)) == [], "nothing is there yet; the next look tells"
    else:
        with pytest.raises(OtherRecord) as other:
            asyncio.run(read_all(reader))
        assert (other.value.tp, other.value.asked) == (TP, read)


async def test_what_other_partitions_hold_is_handed_out_before_a_loss_is_told() -> None:
    broker = filled(3, "new")
    write(broker, OTHER, "other", 2)
    reader = ContinuedReader(MemoryLog(broker), {TP: 2, OTHER: 0}, {TP: place_at(2)})
    await reader.start()
    assert [record.value for record in await reader.poll(10, wait_ms=0)] == [b"other-0", b"other-1"]
    with pytest.raises(OtherRecord):
        await reader.poll(10, wait_ms=0)
    reader.seek(TP, 0)
    assert [record.value for record in await reader.poll(10, wait_ms=0)] == [b"new-0", b"new-1", b"new-2"]
    await reader.stop()


async def test_records_that_were_deleted_unread_are_told_with_the_place_of_the_reader() -> None:
    broker = filled(6)
    reader = ContinuedReader(MemoryLog(broker), {TP: 2}, {TP: place_at(2)})
    broker.delete_before(TP, 4)
    with pytest.raises(LogTruncated) as told:
        await read_all(reader)
    assert (told.value.asked, told.value.begin) == (2, 4)
    assert not isinstance(told.value, OtherRecord)


async def test_a_loss_that_was_met_and_not_told_is_past_where_the_reader_is_set_elsewhere() -> None:
    broker = filled(3, "new")
    write(broker, OTHER, "other", 1)
    reader = ContinuedReader(MemoryLog(broker), {TP: 2, OTHER: 0}, {TP: place_at(2)})
    await reader.start()
    assert [record.value for record in await reader.poll(10, wait_ms=0)] == [b"other-0"]
    reader.seek(TP, 1)
    assert [record.value for record in await reader.poll(10, wait_ms=0)] == [b"new-1", b"new-2"]
    assert reader.positions() == {TP: 3, OTHER: 1}
    await reader.stop()
