"""Snapshots on a real Kafka: chunks of nearly the largest size, compaction switched on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.events.effects import JobEnqueued
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, ProcessRun
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import expected_topics, parse_topics
from fallow.shared.log.follower import Follower
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine import snapshot as machine
from fallow.shared.log.snapshots import newest_snapshot
from tests.histories import CELL, History, outgoing
from tests.log.worlds.snapshot_world import all_records, layout_of, snapshot

pytestmark = pytest.mark.real_kafka

TOPICS = parse_topics((Path(__file__).parents[3] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))


@pytest_asyncio.fixture
async def log(kafka: str, namespace: str) -> AsyncIterator[KafkaLog]:
    await create_topics(kafka, expected_topics(TOPICS, namespace, 2, []))
    log = KafkaLog(kafka, "test")
    await log.start()
    yield log
    await log.stop()


@pytest.fixture
def layout(namespace: str) -> Layout:
    return layout_of(namespace)


async def test_a_snapshot_of_many_chunks_comes_back_and_replaces_the_one_before(log: KafkaLog, layout: Layout) -> None:
    history = History(21)
    history.decisions(50)
    for number in range(12):
        run = ProcessRun(argv=("x" * 8_000,) * 27)
        effect = JobEnqueued(spec=JobSpec(id=f"large-{number}", tenant="acme", run=run), submit_ms=0, digest="0" * 32)
        apply(history.state, effect, 0)
    first = await snapshot(log, layout, history.state)
    history.decisions(20)
    second = await snapshot(log, layout, history.state)
    loaded = await newest_snapshot(log, layout, CELL)
    assert loaded is not None
    assert digest_of(loaded) == digest_of(history.state) == second.digest
    assert first.parts >= 3
    assert max(len(record.value or b"") for record in await all_records(log, layout)) > 800_000


async def test_a_follower_goes_on_behind_the_snapshot(log: KafkaLog, layout: Layout) -> None:
    history = History(23)
    decisions = history.decisions(200)
    await snapshot(log, layout, history.state)
    await log.publish(outgoing(layout, decisions + history.decisions(20)))
    follower = Follower(log, layout, CELL)
    await follower.start()
    assert follower.next_offset == 200
    await follower.catch_up()
    await follower.stop()
    assert digest_of(follower.state) == digest_of(history.state)


async def test_a_torn_snapshot_is_passed_over(log: KafkaLog, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CHUNK_BYTES_MAX", 5_000)
    history = History(22)
    history.decisions(60)
    first = await snapshot(log, layout, history.state)
    history.decisions(60)
    second = await snapshot(log, layout, history.state, writer="b")
    torn = replace(second, version=second.version + 1, parts=second.parts + 1)
    await log.publish([layout.outgoing(torn, id="torn", source="test", wall_ms=0)])
    loaded = await newest_snapshot(log, layout, CELL)
    assert loaded is not None
    assert (loaded.version, first.version) == (second.version, 60)
