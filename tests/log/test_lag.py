from __future__ import annotations

import asyncio

import pytest
from prometheus_client import generate_latest

from shared.log.lag import watch_lag
from shared.log.machine.sights import SIGHTS_MOST, Sights
from shared.log.memory import MemoryBroker, MemoryLog
from shared.log.port import Outgoing
from shared.runtime.process import make_context
from shared.runtime.settings import ServiceSettings


def test_nothing_is_behind_where_everything_is_handled() -> None:
    sights = Sights()
    sights.note(10, 1_000)
    assert sights.behind_ms(10, 5_000) == 0


def test_a_lag_is_as_old_as_the_first_sight_of_what_is_not_handled() -> None:
    sights = Sights()
    sights.note(10, 1_000)
    sights.note(20, 3_000)
    sights.note(20, 4_000)
    assert [sights.behind_ms(cursor, 6_000) for cursor in (5, 10, 19, 20)] == [5_000, 3_000, 3_000, 0]


def test_a_long_lag_keeps_its_beginning_in_bounded_memory() -> None:
    sights = Sights()
    for second in range(10_000):
        sights.note(second + 1, second * 1_000)
    assert len(sights.seen) <= SIGHTS_MOST
    assert sights.behind_ms(0, 10_000_000) == 10_000_000


async def test_the_lag_of_each_partition_is_shown_until_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.log.lag.LOOK_EVERY_S", 0.01)
    broker = MemoryBroker()
    broker.create_topic("t.jobs", 2)
    log = MemoryLog(broker)
    await log.publish([Outgoing("t.jobs", b"x", partition=1)] * 7)
    context = make_context("test", ServiceSettings())
    context.health.handled("t.jobs", 1, 4)
    watch = asyncio.create_task(watch_lag(context, log))
    await asyncio.sleep(0.1)
    shown = generate_latest(context.registry).decode()
    assert 'fallow_lag_records{partition="1",topic="t.jobs"} 3.0' in shown
    assert 'fallow_lag_seconds{partition="1",topic="t.jobs"} 0.' in shown
    context.health.let_go(1)
    await asyncio.sleep(0.1)
    assert "fallow_lag_records{" not in generate_latest(context.registry).decode()
    context.stopping.set()
    await watch
