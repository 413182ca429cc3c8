"""A writer that was at rest looks at its last record before it appends: by itself, whatever other cells wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio
from aiokafka.conn import AIOKafkaConnection

from fallow.shared.log import follower as follower_module
from fallow.shared.log.follower import Follower
from fallow.shared.log.kafka.looks import KafkaLooks
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Outgoing
from tests.contract.worlds.log_worlds import KafkaWorld
from tests.histories import CELL, History, outgoing

pytestmark = pytest.mark.real_kafka

AWAY = "cell-away"
LATE_S, BOUND_S = 0.5, 1.5


@pytest_asyncio.fixture
async def world(kafka: str) -> AsyncIterator[KafkaWorld]:
    world = KafkaWorld(kafka)
    await world.start()
    yield world
    await world.close()


async def written(log: Log, layout: Layout) -> Follower:
    follower = Follower(log, layout, CELL, snapshots=False)
    await log.publish(outgoing(layout, History(26).decisions(3)))
    await follower.start()
    await follower.catch_up()
    await follower.rest()
    return follower


async def test_a_cell_looks_while_the_partition_of_another_does_not_answer(
    world: KafkaWorld, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "SURE_FOR_S", 0.0)
    layout = Layout(namespace, {CELL: 0, AWAY: 1})
    await world.make(layout.topic("decisions"), 1)
    log = await world.log()
    here = await written(log, layout)
    away = Follower(log, layout, AWAY, snapshots=False)
    away.state.offset = here.state.offset
    away.wrote(outgoing(layout, History(26).decisions(1))[0])
    waiting = asyncio.create_task(away.before_append())
    await asyncio.sleep(0)
    for _ in range(3):
        await here.before_append()
    assert not waiting.done(), "its partition is not there"
    with pytest.raises(LogUnavailable, match=f"{namespace}.decisions"):
        await waiting
    await here.before_append()
    for each in (here, away):
        await each.stop()


class Late:
    """Every connection of aiokafka gets each answer of its broker so much later, and the answers are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, late_s: float = LATE_S) -> None:
        self.answers, self._late_s = 0, late_s
        self._send = AIOKafkaConnection.send
        monkeypatch.setattr(AIOKafkaConnection, "send", lambda *sent, **how: self._later(self._send(*sent, **how)))

    async def _later(self, answer: Awaitable[Any]) -> Any:
        found = await answer
        await asyncio.sleep(self._late_s)
        self.answers += 1
        return found


async def filled(world: KafkaWorld) -> tuple[str, int]:
    """Records at the offsets 0 to 3."""
    topic = await world.topic(1)
    log = await world.log()
    await log.publish([Outgoing(topic, value, partition=0) for value in (b"a", b"b", b"c", b"d")])
    return topic, 0


@pytest.mark.parametrize("late_s", [LATE_S, 0.35], ids=["while it connects", "while it fetches"])
async def test_a_broker_that_answers_late_is_waited_for_by_a_look(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """The first look runs out of time."""
    tp = await filled(world)
    looks = KafkaLooks(world.bootstrap, "test", bound_s=BOUND_S)
    Late(monkeypatch, late_s)
    found = await asyncio.gather(looks.stands_before(tp, 4), return_exceptions=True)
    assert isinstance(found[0], LogUnavailable), "to open the consumer and to ask takes more than the bound of one look"
    for offset, value in ((4, b"d"), (3, b"c"), (4, b"d")):
        record = await looks.stands_before(tp, offset)
        assert record is not None
        assert (record.offset, record.value) == (offset - 1, value)
    await looks.stop()


async def test_one_answer_tells_also_where_no_record_stands(world: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    tp = await filled(world)
    await world.delete_before(tp, 2)
    looks = KafkaLooks(world.bootstrap, "test", bound_s=BOUND_S)
    assert await looks.stands_before(tp, 4) is not None
    late = Late(monkeypatch)
    for offset, what in ((2, "is deleted"), (5, "is the end"), (6, "is beyond the end")):
        answers = late.answers
        assert await looks.stands_before(tp, offset) is None, f"offset {offset - 1} {what}"
        assert late.answers - answers <= 1
    assert await looks.stands_before(tp, 0) is None
    await looks.stop()


async def test_a_look_behind_a_transaction_finds_the_record_before_it(world: KafkaWorld) -> None:
    tp = await filled(world)
    await world.transaction(tp, [b"e", b"f"], commits=False)
    looks = KafkaLooks(world.bootstrap, "test", bound_s=BOUND_S)
    for offset in (7, 4, 7, 6):
        record = await looks.stands_before(tp, offset)
        assert record is not None
        assert (record.offset, record.value) == (3, b"d")
    await looks.stop()
