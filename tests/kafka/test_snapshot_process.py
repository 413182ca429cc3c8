"""The snapshot process on a real Kafka: it writes when enough has changed, and not otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.queueing.app.snapshots import Pace, SnapshotSettings, main
from shared.cluster.fold.rows import digest_of
from shared.log.admin.topic_admin import create_topics
from shared.log.admin.topics import expected_topics, parse_topics
from shared.log.kafka.log import KafkaLog
from shared.log.layout import Layout
from shared.log.snapshots import newest_snapshot
from shared.runtime.process import make_context
from tests.contract.eventually import eventually
from tests.histories import CELL, History, outgoing

pytestmark = pytest.mark.real_kafka

TOPICS = parse_topics((Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))
CELL_FILE = "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n"


@pytest_asyncio.fixture
async def log(kafka: str, namespace: str) -> AsyncIterator[KafkaLog]:
    await create_topics(kafka, expected_topics(TOPICS, namespace, 1, []))
    log = KafkaLog(kafka, "test")
    await log.start()
    yield log
    await log.stop()


@pytest.fixture
def settings(kafka: str, namespace: str, tmp_path: Path) -> SnapshotSettings:
    cell_file = tmp_path / "cell.yaml"
    cell_file.write_text(CELL_FILE, encoding="utf-8")
    return SnapshotSettings(kafka=kafka, namespace=namespace, cell_file=cell_file, snapshot_versions=40)


async def test_a_snapshot_is_written_whenever_enough_has_changed(log: KafkaLog, settings: SnapshotSettings) -> None:
    layout, history, context = Layout(settings.namespace, {CELL: 0}), History(5), make_context("snapshots", settings)
    process = asyncio.create_task(main(context))
    decisions = history.decisions(50)
    await log.publish(outgoing(layout, decisions))

    async def is_written() -> bool:
        state = await newest_snapshot(log, layout, CELL)
        return state is not None and digest_of(state) == digest_of(history.state)

    await eventually(is_written, within_s=20)
    handled = {f"{settings.namespace}.decisions/0": 50}
    await eventually(lambda: context.health.progress.cursors == handled)
    context.stopping.set()
    await process
    assert context.health.progress.cursors == {}, "who has let a cell go no longer speaks for it"


async def test_the_process_does_nothing_on_the_embedded_broker(settings: SnapshotSettings) -> None:
    await main(make_context("snapshots", settings.model_copy(update={"embedded": True})))
    assert settings.snapshot_wall_ms == 300_000


def test_a_snapshot_is_due_by_count_or_by_time_and_never_without_a_change() -> None:
    pace = Pace(versions=10, wall_ms=1_000, version=5, at_ms=0)
    assert not pace.is_due(5, 10**9)
    assert not pace.is_due(6, 999)
    assert pace.is_due(6, 1_000)
    assert pace.is_due(15, 0)
    assert not Pace(versions=10, wall_ms=None, version=5, at_ms=0).is_due(6, 10**9)


def test_a_long_snapshot_is_followed_by_a_long_rest() -> None:
    pace = Pace(versions=10, wall_ms=1_000, version=5, at_ms=0)
    pace.written(20, begin_ms=5_000, now_ms=8_000)
    assert not pace.is_due(2_000, 8_000 + 59_999)
    assert pace.is_due(2_000, 8_000 + 60_000)
