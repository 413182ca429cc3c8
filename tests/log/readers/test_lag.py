from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import generate_latest

from fallow.shared.log.inputs.lag import watch_lag
from fallow.shared.log.machine.sights import SIGHTS_MAX, Sights
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.contract.eventually import eventually

TP, TP_ONE = ("t.jobs", 0), ("t.jobs", 1)
"""A partition, and how to make its topic."""


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
    assert len(sights.seen) <= SIGHTS_MAX
    assert sights.behind_ms(0, 10_000_000) == 10_000_000


async def test_the_lag_of_each_partition_is_shown_until_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.shared.log.inputs.lag.LOOK_EVERY_S", 0.01)
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


@asynccontextmanager
async def watched(broker: MemoryBroker, cursor: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Context[Any]]:
    """A process that has come so far in `t.jobs`."""
    monkeypatch.setattr("fallow.shared.log.inputs.lag.LOOK_EVERY_S", 0.01)
    context = make_context("test", ServiceSettings())
    context.health.handled(*TP, cursor)
    watch = asyncio.create_task(watch_lag(context, MemoryLog(broker)))
    yield context
    context.stopping.set()
    await watch


def shown(context: Context[Any], figure: str) -> float | None:
    return context.registry.get_sample_value(figure, {"topic": TP[0], "partition": str(TP[1])})


async def test_what_transactions_leave_behind_is_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    broker.create_topic(*TP_ONE)
    broker.write(Outgoing(TP[0], b"x", partition=0))
    for _ in range(3):
        broker.write_marker(TP)
    async with watched(broker, 1, monkeypatch) as context:
        await eventually(lambda: shown(context, "fallow_lag_records") == 0)
        assert shown(context, "fallow_lag_seconds") == 0
        broker.write(Outgoing(TP[0], b"y", partition=0))
        await eventually(lambda: shown(context, "fallow_lag_records") == 4)
        context.health.handled(*TP, 5)
        await eventually(lambda: shown(context, "fallow_lag_records") == 0)
        broker.write_marker(TP)
        await eventually(lambda: shown(context, "fallow_lag_records") == 1)
        await eventually(lambda: shown(context, "fallow_lag_records") == 0)


def notes(context: Context[Any]) -> str:
    """What `/readyz` tells a person beside being ready or not."""
    return ", ".join(context.health._notes.values())


async def test_a_transaction_that_stays_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing behind it can be read, so there is no lag: the log seems to end there."""
    monkeypatch.setattr("fallow.shared.log.inputs.lag.OPEN_MS_MAX", 50)
    broker = MemoryBroker()
    broker.create_topic(*TP_ONE)
    broker.hold(TP, 2)
    async with watched(broker, 0, monkeypatch) as context:
        await eventually(lambda: "a transaction is open" in notes(context))
        assert (shown(context, "fallow_open_transaction_seconds") or 0) > 0
        broker.hold(TP, 0)
        await eventually(lambda: notes(context) == "")
        assert shown(context, "fallow_open_transaction_seconds") == 0
        broker.hold(TP, 1)
        await eventually(lambda: notes(context) != "")
        context.health.let_go(TP[1])
        await eventually(lambda: notes(context) == "")
