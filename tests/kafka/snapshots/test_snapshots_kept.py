"""Snapshots that queueing writes on a real Kafka: when enough has changed, and not otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from fallow.services.queueing.app import main
from fallow.services.queueing.settings import QueueingSettings
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import expected_topics, parse_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.snapshots import NoUsableSnapshot, newest_snapshot
from fallow.shared.runtime.process import make_context
from tests.contract.eventually import eventually
from tests.histories import CELL, History, outgoing

pytestmark = pytest.mark.real_kafka

TOPICS = parse_topics((Path(__file__).parents[3] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))
CELL_FILE = "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n"


@pytest_asyncio.fixture
async def log(kafka: str, namespace: str) -> AsyncIterator[KafkaLog]:
    await create_topics(kafka, expected_topics(TOPICS, namespace, 1, []))
    log = KafkaLog(kafka, "test")
    await log.start()
    yield log
    await log.stop()


@pytest.fixture
def settings(kafka: str, namespace: str, tmp_path: Path) -> QueueingSettings:
    cell_file = tmp_path / "cell.yaml"
    cell_file.write_text(CELL_FILE, encoding="utf-8")
    return QueueingSettings(kafka=kafka, namespace=namespace, cell_file=cell_file, snapshot_versions=40)


async def test_a_snapshot_is_written_whenever_enough_has_changed(log: KafkaLog, settings: QueueingSettings) -> None:
    layout, history, context = Layout(settings.namespace, {CELL: 0}), History(5), make_context("queueing", settings)
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


async def test_a_topic_that_was_deleted_and_made_again_gets_the_snapshot_of_a_cell_at_rest(
    kafka: str, log: KafkaLog, settings: QueueingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow.services.queueing.app.snapshots.LOOK_EVERY_MS", 500)
    layout, history, context = Layout(settings.namespace, {CELL: 0}), History(5), make_context("queueing", settings)
    process, tp = asyncio.create_task(main(context)), layout.tp("snapshots", CELL)
    await log.publish(outgoing(layout, history.decisions(50)))

    async def is_written() -> bool:
        state = await newest_snapshot(log, layout, CELL)
        return state is not None and state.version == 50

    await eventually(is_written, within_s=20)
    await log.delete_before(layout.tp("decisions", CELL), 50)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_topics([tp[0]])
    await admin.close()
    await asyncio.sleep(1)
    await create_topics(kafka, expected_topics(TOPICS, settings.namespace, 1, []))

    async def is_there_again() -> bool:
        try:
            return (await log.end_offsets([tp]))[tp] > 0 and await is_written()
        except NoUsableSnapshot:
            return False  # its manifest is not there yet

    await eventually(is_there_again, within_s=40)
    await eventually(lambda: context.health.waiting_for is None)
    context.stopping.set()
    await process
