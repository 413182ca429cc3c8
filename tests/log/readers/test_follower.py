"""What a follower does where the broker lost what it had acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fallow.shared.cluster.fold.fold import DamagedLog, extend
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.log import follower as follower_module
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Appended, LogTruncated, Record, TopicPartition
from tests.histories import CELL, History, folded, outgoing
from tests.log.worlds.snapshot_world import TOPICS, layout_of, snapshot

LAYOUT = layout_of("fallow")


async def test_a_writer_whose_log_ends_before_its_state_learns_of_it_when_it_looks() -> None:
    broker, history = MemoryBroker(), History(21)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log = MemoryLog(broker)
    await log.publish(outgoing(LAYOUT, history.decisions(10)))
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    await follower.rest()
    tp = LAYOUT.tp("decisions", CELL)
    del broker.partition(tp).records[-2:]
    with pytest.raises(LogTruncated) as error:
        await follower.catch_up()
    assert (error.value.asked, error.value.end) == (10, 8)
    await follower.stop()


async def test_a_writer_whose_last_record_was_replaced_learns_of_it_when_it_looks() -> None:
    broker, history = MemoryBroker(), History(22)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp = MemoryLog(broker), LAYOUT.tp("decisions", CELL)
    messages = outgoing(LAYOUT, history.decisions(11))
    await log.publish(messages[:10])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    await follower.rest()
    del broker.partition(tp).records[-1:]
    await log.publish(messages[10:])
    with pytest.raises(DamagedLog, match="has lost records"):
        await follower.catch_up()
    await follower.stop()


@pytest.mark.parametrize(("read_first", "in_snapshot"), [(8, 3), (3, 8), (8, 8), (0, 5)])
async def test_a_start_that_is_made_again_goes_on_from_the_newer_of_its_state_and_the_snapshot(
    read_first: int, in_snapshot: int
) -> None:
    broker, history = MemoryBroker(), History(23)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, decisions = MemoryLog(broker), history.decisions(12)
    messages = outgoing(LAYOUT, decisions)
    await log.publish(messages[:read_first])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    await log.publish(messages[read_first:])
    await snapshot(log, LAYOUT, folded(decisions[:in_snapshot]))
    await follower.start()
    assert follower.state.version == max(read_first, in_snapshot)
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(folded(decisions))
    await follower.stop()


async def test_a_cell_that_was_moved_here_begins_with_its_snapshot_though_no_record_lies_behind_it() -> None:
    broker, state = MemoryBroker(), folded(History(23).decisions(12))
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, state.offset = MemoryLog(broker), -1
    await snapshot(log, LAYOUT, state)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(state)
    await follower.stop()


@pytest.mark.parametrize("behind", [0, 1, 5])
async def test_a_writer_learns_that_one_of_its_own_records_was_damaged_when_it_looks(behind: int) -> None:
    broker, decisions = MemoryBroker(), History(24).decisions(12)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp = MemoryLog(broker), LAYOUT.tp("decisions", CELL)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.rest()
    await wrote_all(log, follower, decisions)
    records = broker.partition(tp).records
    damaged = len(records) - 1 - behind
    records[damaged] = replace(records[damaged], value=b"\xff" + (records[damaged].value or b"")[1:])
    with pytest.raises(DamagedLog, match=f"offset {damaged} now holds a different record") as error:
        await follower.catch_up()
    assert error.value.offset == damaged
    await follower.stop()


async def test_a_writer_that_looks_reads_its_own_records_again_and_folds_none_of_them_twice() -> None:
    broker, decisions = MemoryBroker(), History(25).decisions(12)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp = MemoryLog(broker), LAYOUT.tp("decisions", CELL)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.rest()
    await wrote_all(log, follower, decisions[:9])
    broker.delete_before(tp, 4)
    await log.publish(outgoing(LAYOUT, decisions)[9:])
    await follower.poll()
    await follower.catch_up()
    assert digest_of(follower.state) == digest_of(folded(decisions))
    await follower.catch_up()
    assert follower.next_offset == len(decisions)
    await follower.stop()


@pytest.mark.parametrize("by", ["reading", "writing"])
async def test_a_writer_learns_before_it_appends_that_the_last_record_is_another(by: str) -> None:
    """Also where it has read to the end just now: nothing came behind, and so nothing was read again."""
    broker, decisions = MemoryBroker(), History(26).decisions(11)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp, messages = MemoryLog(broker), LAYOUT.tp("decisions", CELL), outgoing(LAYOUT, decisions)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    if by == "reading":
        await log.publish(messages[:10])
        await follower.catch_up()
    else:
        await wrote_all(log, follower, decisions[:10])
    broker.cut(tp, 9)
    await log.publish(messages[10:])
    if by == "reading":
        await follower.catch_up()
    with pytest.raises(DamagedLog, match="offset 9 now holds a different record") as error:
        await follower.before_append()
    assert error.value.offset == 9
    await follower.stop()


class CountedLooks(MemoryLog):
    """What each look of a writer found before its last record."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.found: list[int | None] = []

    async def stands_before(self, *asked: Any, **more: Any) -> Any:
        """Where the reader stands, written down as well."""
        found = await super().stands_before(*asked, **more)
        self.found.append(None if found is None else found.offset)
        return found


async def test_a_writer_whose_last_record_is_there_or_was_deleted_by_its_age_may_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_module, "SURE_FOR_S", 0.0)
    broker, decisions = MemoryBroker(), History(27).decisions(11)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp = CountedLooks(broker), LAYOUT.tp("decisions", CELL)
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.before_append()
    await log.publish(outgoing(LAYOUT, decisions)[:10])
    await follower.catch_up()
    await follower.before_append()
    broker.write_marker(tp)
    await follower.before_append()
    broker.delete_before(tp, 11)
    await follower.before_append()
    assert log.found == [9, 9, None], "each time it has looked"
    await follower.stop()


async def test_a_writer_that_begins_with_a_newer_snapshot_knows_no_record_that_could_be_another() -> None:
    broker, decisions = MemoryBroker(), History(28).decisions(10)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, messages = MemoryLog(broker), outgoing(LAYOUT, decisions)
    await log.publish(messages[:4])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    await log.publish(messages[4:])
    await snapshot(log, LAYOUT, folded(decisions))
    await follower.start()
    await follower.before_append()
    await follower.stop()


class Counting(MemoryLog):
    """Counts the looks."""

    looks = 0

    async def last_before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
        self.looks += 1
        return await super().last_before(offsets)


def counting() -> Counting:
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    return Counting(broker)


async def test_a_writer_that_has_just_written_does_not_look_before_it_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "SURE_FOR_S", 1_000.0)
    log, decisions = counting(), History(29).decisions(10)
    await log.publish(outgoing(LAYOUT, decisions)[:1])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    for decision in decisions[1:]:
        await follower.before_append()
        await wrote_all(log, follower, [decision])
    assert log.looks == 1, "at the beginning"
    await follower.stop()


async def test_a_busy_writer_looks_once_and_one_that_has_sent_nothing_for_longer_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, decisions, at_s = counting(), History(32).decisions(10), [0.0]
    await log.publish(outgoing(LAYOUT, decisions)[:1])
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: at_s[0])
    looks = []
    for decision, rest_s in zip(decisions[1:], (0.0, 0.3, 0.3, 0.3, 0.5, 0.3, 0.1, 0.3, 0.5), strict=True):
        at_s[0] += rest_s
        await follower.before_append()
        looks.append(log.looks)
        await wrote_all(log, follower, [decision])
    assert looks == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    for rest_s, looks_then in ((0.5, 4), (0.3, 4), (0.2, 5)):  # these appends have no answer
        at_s[0] += rest_s
        await follower.before_append()
        assert log.looks == looks_then
    monkeypatch.undo()
    await follower.stop()


async def test_a_writer_that_knows_no_record_at_its_place_does_not_look() -> None:
    """It could compare nothing: it begins with an empty log, or with a snapshot."""
    log, decisions = counting(), History(30).decisions(10)
    for _ in range(2):
        follower = Follower(log, LAYOUT, CELL)
        await follower.start()
        looks_before = log.looks
        await follower.before_append()
        assert log.looks == looks_before
        await follower.stop()
        await log.publish(outgoing(LAYOUT, decisions))
        await snapshot(log, LAYOUT, folded(decisions))


async def test_a_writer_names_the_offset_of_the_record_that_it_found_in_the_place_of_its_own() -> None:
    broker, decisions = MemoryBroker(), History(31).decisions(10)
    for topic in TOPICS:
        broker.create_topic(LAYOUT.topic(topic), 2)
    log, tp = MemoryLog(broker), LAYOUT.tp("decisions", CELL)
    await log.publish(outgoing(LAYOUT, decisions))
    follower = Follower(log, LAYOUT, CELL)
    await follower.start()
    await follower.catch_up()
    broker.cut(tp, 9)
    broker.write_marker(tp)
    with pytest.raises(DamagedLog, match="no record stands at offset 9 any more, the last one before it at 8") as error:
        await follower.before_append()
    assert error.value.offset == 9
    await follower.stop()


async def wrote_all(log: MemoryLog, follower: Follower, decisions: Sequence[Decision]) -> None:
    """Append them one by one as a writer does: it makes each on its state, and reads none."""
    for decision, message in zip(decisions, outgoing(LAYOUT, decisions), strict=True):
        answer = await log.append(message)
        assert isinstance(answer, Appended)
        extend(follower.state, decision, dict(message.headers)[CHAIN_HEADER].decode())
        follower.state.offset = answer.offset
        follower.wrote(message)
