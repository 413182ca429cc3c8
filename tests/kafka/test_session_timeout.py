"""Groups work on a broker with Kafka's own shortest session (6 seconds), where ours (1.5) is not allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.log.faststream_recipe import make_broker, subscribe_batches
from shared.log.group_timers import EMBEDDED, QUICK, GroupTimers
from shared.log.kafka import KafkaLog
from shared.log.opening import declared_topics, open_log
from shared.log.port import Outgoing, Record
from shared.log.topic_admin import create_topics, session_ms_min
from shared.runtime.cell_file import parse_cell_file
from shared.runtime.process import make_context
from shared.runtime.settings import ServiceSettings
from shared.runtime.stack.kafka_jars import KafkaFromJars
from tests.contract.eventually import eventually

DEFAULT_MS = 6_000
FILE = parse_cell_file(
    "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n", "cell"
)


@pytest.fixture(scope="module")
def default_kafka(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    more = {"group.min.session.timeout.ms": str(DEFAULT_MS)}
    broker = KafkaFromJars(tmp_path_factory.mktemp("default-kafka"), more=more)
    broker.start()
    yield broker.address
    broker.stop()


@pytest.mark.real_kafka
async def test_groups_take_the_shortest_session_that_the_broker_allows(default_kafka: str, namespace: str) -> None:
    await create_topics(default_kafka, declared_topics(FILE, namespace))
    context = make_context("test", ServiceSettings(kafka=default_kafka, namespace=namespace))
    log = await open_log(context, FILE)
    assert isinstance(log, KafkaLog)
    assert log.timers == GroupTimers(DEFAULT_MS, 1_200)

    member = log.member(f"{namespace}.group", f"{namespace}.cells")
    await member.start()
    await eventually(lambda: member.owned() == {0}, within_s=20)
    await member.stop()

    seen: list[Record] = []

    async def handle(records: list[Record]) -> None:
        seen.extend(records)

    await log.publish([Outgoing(f"{namespace}.submissions", b"v", partition=0)])
    broker = make_broker(default_kafka, "test")
    subscribe_batches(broker, [f"{namespace}.submissions"], f"{namespace}.admission", handle, timers=log.timers)
    async with broker:
        await broker.start()
        await eventually(lambda: len(seen) == 1, within_s=20)
    context.stopping.set()
    await log.stop()


@pytest.mark.real_kafka
async def test_a_broker_that_allows_our_own_session_is_asked_for_it(kafka: str) -> None:
    assert QUICK.at_least(await session_ms_min(kafka) or 0) is QUICK


def test_timers_keep_their_proportion() -> None:
    assert QUICK.at_least(3_000) == GroupTimers(3_000, 600)
    assert EMBEDDED.at_least(6_000) is EMBEDDED
