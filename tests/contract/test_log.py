"""What every log must do, held against the one in memory, the one of the fault worlds and the one on Kafka."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from fallow.shared.log.port import (
    RECORD_BYTES_MAX,
    Appended,
    AppendRefused,
    Log,
    LogRefused,
    LogTruncated,
    LogUnavailable,
    Member,
    Outgoing,
    Reader,
    Record,
    RecordTooLarge,
    Refusal,
)
from tests.contract.eventually import eventually
from tests.contract.worlds.log_worlds import World


async def read(reader: Reader, count: int) -> list[Record]:
    """Poll until `count` records came, for at most ten seconds."""
    found: list[Record] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found.extend(await reader.poll(wait_ms=200))
    return found


async def read_from(log: Log, positions: dict[tuple[str, int], int], count: int) -> list[Record]:
    reader = log.reader(positions)
    await reader.start()
    try:
        return await read(reader, count)
    finally:
        await reader.stop()


async def must_own(member: Member, partitions: set[int]) -> float:
    """Wait until the member owns just these; return how long that took, in seconds."""
    began = time.monotonic()
    async with asyncio.timeout(15):
        while member.owned() != partitions:
            await member.changed()
    return time.monotonic() - began


async def test_records_keep_their_order_within_a_partition(world: World, log: Log) -> None:
    topic = await world.topic(2)
    await log.publish([Outgoing(topic, b"%d" % n, partition=n % 2) for n in range(2000)])
    found = await read_from(log, {(topic, 0): 0, (topic, 1): 0}, 2000)
    assert [int(r.value or b"") for r in found if r.partition == 0] == list(range(0, 2000, 2))
    assert [int(r.value or b"") for r in found if r.partition == 1] == list(range(1, 2000, 2))


async def test_appended_offsets_are_adjacent(world: World, log: Log) -> None:
    topic = await world.topic(1)
    answers = [await log.append(Outgoing(topic, b"v", partition=0)) for _ in range(100)]
    assert answers == [Appended(offset) for offset in range(100)]


async def test_publish_returns_when_all_are_there(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"v" * 1000, partition=0) for _ in range(300)])
    assert await log.end_offsets([(topic, 0)]) == {(topic, 0): 300}


async def test_publishing_nothing_is_fine(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([])
    assert await log.end_offsets([(topic, 0)]) == {(topic, 0): 0}


async def test_a_key_always_goes_to_the_same_partition_as_in_kafka(world: World, log: Log) -> None:
    topic = await world.topic(12)
    keys = [b"", b"a", b"ab", b"abc", b"job-1", b"job-22", "\u00e9\u4e16".encode(), b"\xff\xfe\xfd"]
    await log.publish([Outgoing(topic, b"v", key=key) for key in keys + keys])
    found = await read_from(log, {(topic, n): 0 for n in range(12)}, 16)
    partitions = {key: sorted({r.partition for r in found if r.key == key}) for key in keys}
    expected = [[9], [4], [2], [3], [8], [6], [11], [8]]
    assert [partitions[key] for key in keys] == expected


async def test_a_record_of_a_megabyte_passes(world: World, log: Log) -> None:
    topic = await world.topic(1)
    big = bytes(range(256)) * 4000
    await log.publish([Outgoing(topic, b"small"), Outgoing(topic, big), Outgoing(topic, b"small too")])
    assert [r.value for r in await read_from(log, {(topic, 0): 0}, 3)] == [b"small", big, b"small too"]


async def test_a_record_that_is_too_large_is_refused_for_good(world: World, log: Log) -> None:
    topic = await world.topic(1)
    with pytest.raises(RecordTooLarge):
        await log.publish([Outgoing(topic, b"x" * 1_100_000)])
    answer = await log.append(Outgoing(topic, b"x" * 1_100_000, partition=0))
    assert isinstance(answer, AppendRefused)
    assert answer.code is Refusal.TOO_LARGE
    assert await log.append(Outgoing(topic, b"next", partition=0)) == Appended(0)


async def test_the_log_tells_how_large_a_record_of_a_topic_may_be(world: World, log: Log) -> None:
    assert (await log.topic_record_bytes_max(await world.topic(1)) or 0) >= RECORD_BYTES_MAX
    most = await log.topic_record_bytes_max(await world.topic_that_refuses(Refusal.TOO_LARGE))
    assert most is not None
    assert most <= 10


@pytest.mark.parametrize("code", [Refusal.INVALID, Refusal.TOO_LARGE])
async def test_what_the_broker_refuses_for_good_is_told_apart_from_what_may_pass(
    world: World, log: Log, code: Refusal
) -> None:
    topic = await world.topic_that_refuses(code)
    answer = await log.append(Outgoing(topic, b"v", partition=0))
    assert isinstance(answer, AppendRefused)
    assert answer.code is code
    with pytest.raises(LogRefused) as caught:
        await log.publish([Outgoing(topic, b"v", partition=0)])
    assert caught.value.code is code
    assert isinstance(caught.value, RecordTooLarge) is (code is Refusal.TOO_LARGE)
    assert await log.end_offsets([(topic, 0)]) == {(topic, 0): 0}
    other = await world.topic(1)
    assert await log.append(Outgoing(other, b"next", partition=0)) == Appended(0)


async def test_absent_keys_and_values_and_all_headers_are_kept(world: World, log: Log) -> None:
    topic = await world.topic(1)
    headers = (("a", b""), ("a", b"\xff\x00"), ("\u00e9", b"2"))
    tombstone, bare = Outgoing(topic, None, key=b"k"), Outgoing(topic, b"v", key=b"")
    await log.publish([tombstone, Outgoing(topic, b"", headers=headers), bare])
    found = await read_from(log, {(topic, 0): 0}, 3)
    assert [(r.key, r.value, r.headers) for r in found] == [(b"k", None, ()), (None, b"", headers), (b"", b"v", ())]


async def test_a_reader_starts_where_it_is_told_and_knows_where_it_stands(world: World, log: Log) -> None:
    topic = await world.topic(2)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(10)])
    reader = log.reader({(topic, 0): 4, (topic, 1): 0})
    await reader.start()
    assert [r.offset for r in await read(reader, 6)] == [4, 5, 6, 7, 8, 9]
    assert reader.positions() == {(topic, 0): 10, (topic, 1): 0}
    await reader.stop()


async def test_a_poll_gives_at_most_what_was_asked_for(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(10)])
    reader = log.reader({(topic, 0): 0})
    await reader.start()
    assert [r.offset for r in await reader.poll(max_records=3, wait_ms=5000)] == [0, 1, 2]
    assert reader.positions() == {(topic, 0): 3}
    assert [r.offset for r in await read(reader, 7)] == [3, 4, 5, 6, 7, 8, 9]
    await reader.stop()


async def test_seek_goes_back_and_forth(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(10)])
    reader = log.reader({(topic, 0): 0})
    await reader.start()
    await read(reader, 10)
    reader.seek((topic, 0), 2)
    assert reader.positions() == {(topic, 0): 2}
    assert [r.offset for r in await read(reader, 8)] == [2, 3, 4, 5, 6, 7, 8, 9]
    reader.seek((topic, 0), 9)
    assert [r.offset for r in await read(reader, 1)] == [9]
    with pytest.raises(KeyError):
        reader.seek((topic, 7), 0)
    await reader.stop()


async def test_two_readers_read_the_same_independently(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(5)])
    first = await read_from(log, {(topic, 0): 0}, 5)
    second = await read_from(log, {(topic, 0): 0}, 5)
    assert [r.offset for r in first] == [r.offset for r in second] == [0, 1, 2, 3, 4]


async def test_an_idle_poll_wakes_as_soon_as_something_comes(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.append(Outgoing(topic, b"first", partition=0))
    reader = log.reader({(topic, 0): 1})
    await reader.start()
    waiting = asyncio.create_task(reader.poll(wait_ms=5000))
    await asyncio.sleep(0.3)
    began = time.monotonic()
    await log.append(Outgoing(topic, b"second", partition=0))
    assert [r.value for r in await waiting] == [b"second"]
    assert time.monotonic() - began < 4  # long before its wait is over
    await reader.stop()


async def test_an_idle_poll_ends_after_its_wait(world: World, log: Log) -> None:
    topic = await world.topic(1)
    reader = log.reader({(topic, 0): 0})
    await reader.start()
    began = time.monotonic()
    assert await reader.poll(wait_ms=100) == []
    assert 0.05 < time.monotonic() - began < 10
    await reader.stop()


async def test_a_patient_reader_gets_all_that_was_written_and_a_lone_record_in_time(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(1000)])
    reader = log.reader({(topic, 0): 0}, patient_ms=300)
    await reader.start()
    assert [int(r.value or b"") for r in await read(reader, 1000)] == list(range(1000))
    began = time.monotonic()
    await log.append(Outgoing(topic, b"lone", partition=0))
    assert [r.value for r in await read(reader, 1)] == [b"lone"]
    assert time.monotonic() - began < 10
    await reader.stop()


async def test_reading_what_was_deleted_says_what_is_left(world: World, log: Log) -> None:
    topic = await world.topic(2)
    await log.publish([Outgoing(topic, b"%d" % n, partition=0) for n in range(10)])
    await world.delete_before((topic, 0), 6)
    reader = log.reader({(topic, 0): 2, (topic, 1): 0})
    await reader.start()
    with pytest.raises(LogTruncated) as caught:
        await read(reader, 1)
    assert (caught.value.tp, caught.value.asked, caught.value.begin, caught.value.end) == ((topic, 0), 2, 6, 10)
    assert await log.begin_offsets([(topic, 0)]) == {(topic, 0): 6}
    reader.seek((topic, 0), 6)
    assert [r.offset for r in await read(reader, 4)] == [6, 7, 8, 9]
    await reader.stop()


async def test_reading_beyond_the_end_is_an_error_too(world: World, log: Log) -> None:
    topic = await world.topic(1)
    await log.publish([Outgoing(topic, b"only", partition=0)])
    with pytest.raises(LogTruncated) as caught:
        await read_from(log, {(topic, 0): 5}, 1)
    assert (caught.value.asked, caught.value.begin, caught.value.end) == (5, 0, 1)


async def test_partitions_are_counted_as_the_topic_grows(world: World, log: Log) -> None:
    topic = await world.topic(2)
    assert await log.partitions(topic) == 2
    await world.grow(topic, 3)

    async def has_grown() -> bool:
        return await log.partitions(topic) == 3

    await eventually(has_grown)
    assert await log.partitions("no-such-topic") == 0


async def test_of_a_topic_that_is_deleted_and_made_anew_nothing_is_left(world: World, log: Log) -> None:
    topic, other = await world.topic(2), await world.topic(1)
    await log.publish([Outgoing(topic, b"before", partition=0)])
    await world.delete(topic)

    async def counts(partitions: int) -> bool:
        return await log.partition_counts([topic, other]) == {topic: partitions, other: 1}

    await eventually(partial(counts, 0))
    await world.make(topic, 3)
    await eventually(partial(counts, 3))
    assert await log.end_offsets([(topic, 0)]) == {(topic, 0): 0}
    await log.publish([Outgoing(topic, b"after", partition=0)])
    assert [record.value for record in (await log.last_before({(topic, 0): 1})).values()] == [b"after"]


async def test_writing_where_no_partition_is_says_so_in_time(world: World, log: Log) -> None:
    topic = await world.topic(1)
    began = time.monotonic()
    with pytest.raises(LogUnavailable):
        await log.publish([Outgoing(topic, b"v", partition=3)])
    with pytest.raises(LogUnavailable):
        await log.publish([Outgoing("no-such-topic", b"v")])
    with pytest.raises(LogUnavailable):
        await log.end_offsets([("no-such-topic", 0)])
    assert time.monotonic() - began < 10


async def test_one_member_owns_everything(world: World, log: Log) -> None:
    topic = await world.topic(3)
    member = log.member(f"group-{topic}", topic)
    await member.start()
    await must_own(member, {0, 1, 2})
    await member.stop()
    assert member.owned() == frozenset()


async def test_two_members_share_and_the_one_left_takes_over(world: World, log: Log) -> None:
    topic = await world.topic(3)
    first, second = log.member(f"group-{topic}", topic), log.member(f"group-{topic}", topic)
    await first.start()
    await must_own(first, {0, 1, 2})
    await second.start()
    await eventually(lambda: sorted([len(first.owned()), len(second.owned())]) == [1, 2])
    assert first.owned() | second.owned() == {0, 1, 2}
    await first.stop()
    assert await must_own(second, {0, 1, 2}) < 3
    await second.stop()


async def test_groups_do_not_share_with_each_other(world: World, log: Log) -> None:
    topic = await world.topic(2)
    ours, theirs = log.member(f"ours-{topic}", topic), log.member(f"theirs-{topic}", topic)
    await ours.start()
    await theirs.start()
    await must_own(ours, {0, 1})
    await must_own(theirs, {0, 1})
    await ours.stop()
    await theirs.stop()


async def test_what_a_member_declines_goes_to_another_and_comes_back(world: World, log: Log) -> None:
    topic = await world.topic(3)
    first, second = log.member(f"group-{topic}", topic), log.member(f"group-{topic}", topic)
    await first.start()
    await must_own(first, {0, 1, 2})
    first.decline(frozenset({1}))
    await must_own(first, {0, 2})
    await second.start()
    await eventually(lambda: 1 in second.owned() and first.owned() | second.owned() == {0, 1, 2})
    first.decline(frozenset())
    await second.stop()
    await must_own(first, {0, 1, 2})
    await first.stop()


async def test_changed_waits_for_a_change(world: World, log: Log) -> None:
    topic = await world.topic(1)
    member = log.member(f"group-{topic}", topic)
    await member.start()
    await must_own(member, {0})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await must_own(member, set())
    await member.stop()
