"""A writer that was at rest looks at its last record before it appends: by itself, whatever other cells wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log import follower as follower_module
from fallow.shared.log.follower import Follower
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable
from tests.contract.log_worlds import KafkaWorld
from tests.histories import CELL, History, outgoing

pytestmark = pytest.mark.real_kafka

AWAY = "cell-away"


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
