"""What a follower does where the broker lost what it had acknowledged."""

from __future__ import annotations

import pytest

from shared.cluster.fold import DamagedLog
from shared.cluster.rows import digest_of
from shared.log.follower import Follower
from shared.log.memory import MemoryBroker, MemoryLog
from shared.log.port import LogTruncated
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
