"""What a follower does where the broker lost what it had acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fallow.shared.cluster.fold.fold import DamagedLog, extend
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.events.decisions import CHAIN_HEADER, Decision
from fallow.shared.log.follower import Follower
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Appended, LogTruncated
from tests.histories import CELL, History, folded, outgoing
from tests.log.snapshot_world import TOPICS, layout_of, snapshot

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
    with pytest.raises(DamagedLog, match=f"offset {damaged}: another record stands there") as error:
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


async def wrote_all(log: MemoryLog, follower: Follower, decisions: Sequence[Decision]) -> None:
    """Append them one by one as a writer does: it makes each on its state, and reads none."""
    for decision, message in zip(decisions, outgoing(LAYOUT, decisions), strict=True):
        answer = await log.append(message)
        assert isinstance(answer, Appended)
        extend(follower.state, decision, dict(message.headers)[CHAIN_HEADER].decode())
        follower.state.offset = answer.offset
        follower.wrote(message)
