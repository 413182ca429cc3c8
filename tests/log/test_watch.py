"""A process says that Kafka is away, or lacks a topic that it reads, until that is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fallow.shared.log import watch
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.watch import watch_log
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.contract.eventually import eventually


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in ("cells", "decisions", "submissions", "submissions.ada"):
        made.create_topic(f"t.{topic}", 1)
    return made


@pytest.fixture
async def context(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Context[ServiceSettings]]:
    monkeypatch.setattr(watch, "ASK_EVERY_S", 0.01)
    found, log = make_context("test", ServiceSettings(namespace="t")), MemoryLog(broker)
    await log.start()
    for topic in ("decisions", "submissions", "submissions.ada"):
        found.health.handled(f"t.{topic}", 0, 0)
    found.health.ready()
    watching = asyncio.create_task(watch_log(found, log, "t.cells"))
    yield found
    found.stopping.set()
    await watching


async def test_a_topic_that_is_read_and_gone_is_named_until_it_is_there_again(
    context: Context[ServiceSettings], broker: MemoryBroker
) -> None:
    await eventually(lambda: context.health.is_ready)
    context.health.progress.version["main"] = 1
    broker.delete_topic("t.decisions")
    await eventually(lambda: not context.health.is_ready)
    assert context.health.answer("/readyz/main")[0] == 503
    assert "it has no topic t.decisions. Run: fallow topics create" in str(context.health.answer("/readyz"))
    broker.create_topic("t.decisions", 1)
    await eventually(lambda: context.health.is_ready)


@pytest.mark.parametrize("topic", ["t.decisions", "t.submissions"])
async def test_each_topic_that_is_read_is_watched(
    context: Context[ServiceSettings], broker: MemoryBroker, topic: str
) -> None:
    broker.delete_topic(topic)
    await eventually(lambda: f"it has no topic {topic}. Run" in str(context.health.answer("/readyz")))


async def test_the_topic_of_a_tenant_may_go(context: Context[ServiceSettings], broker: MemoryBroker) -> None:
    await eventually(lambda: context.health.is_ready)
    broker.delete_topic("t.submissions.ada")
    broker.delete_topic("t.decisions")
    await eventually(lambda: not context.health.is_ready)
    assert "submissions.ada" not in str(context.health.answer("/readyz"))
