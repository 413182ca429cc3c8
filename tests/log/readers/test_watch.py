"""A process says that Kafka is away, or lacks a topic that it reads, until that is mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from fallow.services.admission.app import answering
from fallow.services.executor.app import agent, wiring
from fallow.services.placement.app import writer
from fallow.shared.log import watch
from fallow.shared.log.admin.access_rules import parse_access
from fallow.shared.log.admin.topics import parse_topics
from fallow.shared.log.memory.log import MemoryBroker, MemoryLog
from fallow.shared.log.opening import ACCESS_FILE, TOPICS_FILE
from fallow.shared.log.sharing import owned_cells
from fallow.shared.log.watch import watch_log
from fallow.shared.runtime.process import Context, make_context
from fallow.shared.runtime.settings import ServiceSettings
from tests.contract.eventually import eventually

READS = ("decisions", "submissions")


@pytest.fixture
def broker() -> MemoryBroker:
    made = MemoryBroker()
    for topic in READS:
        made.create_topic(f"t.{topic}", 1)
    return made


@pytest.fixture
async def context(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Context[ServiceSettings]]:
    monkeypatch.setattr(watch, "ASK_EVERY_S", 0.01)
    found, log = make_context("test", ServiceSettings(namespace="t")), MemoryLog(broker)
    await log.start()
    found.reads.update(READS)
    found.health.ready()
    watching = asyncio.create_task(watch_log(found, log))
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


@pytest.mark.parametrize("topic", READS)
async def test_each_topic_that_is_read_is_watched(
    context: Context[ServiceSettings], broker: MemoryBroker, topic: str
) -> None:
    broker.delete_topic(f"t.{topic}")
    await eventually(lambda: f"it has no topic t.{topic}. Run" in str(context.health.answer("/readyz")))


@pytest.mark.parametrize(
    ("principal", "told"),
    [
        ("admission", answering.READS),
        ("placement", writer.READS),
        ("executor", {*wiring.READS, *wiring.READS_BY_STEPS, *agent.READS}),
        *((name, owned_cells.READS) for name in ("queueing", "loaning", "projector", "metrics")),
    ],
)
def test_all_that_a_service_has_a_right_to_read_is_told_to_the_watch(principal: str, told: Collection[str]) -> None:
    declared = parse_access(ACCESS_FILE.read_text(), parse_topics(TOPICS_FILE.read_text()).topics)
    assert set(declared.principals[principal].read) == set(told)
