"""The projector as it runs: a real Kafka, a real Redis, and its ownership by a group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import SecretStr

from fallow.services.projector.app import main
from fallow.services.projector.settings import ProjectorSettings
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import expected_topics, parse_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.runtime.process import make_context
from fallow.shared.view.compare import compare_view
from fallow.shared.view.reader import ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewUnavailable
from tests.contract.eventually import eventually
from tests.histories import CELL, History, outgoing

pytestmark = pytest.mark.real_kafka

TOPICS = parse_topics((Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))
CELL_FILE = "cells: [{name: cell-a, ordinal: 0, pools: [{name: pool-0, gpus: 8}]}]\ntenants: [{name: acme}]\n"


async def test_the_process_projects_the_cell_that_it_owns(
    kafka: str, redis_url: str, namespace: str, tmp_path: Path
) -> None:
    cell_file = tmp_path / "cell.yaml"
    cell_file.write_text(CELL_FILE, encoding="utf-8")
    settings = ProjectorSettings(kafka=kafka, redis=SecretStr(redis_url), namespace=namespace, cell_file=cell_file)
    await create_topics(kafka, expected_topics(TOPICS, namespace, 1, []))
    log, functions, history = KafkaLog(kafka, "test"), RedisFunctions(redis_url), History(31)
    await log.start()
    await log.publish(outgoing(Layout(namespace, {CELL: 0}), history.decisions(200)))
    context = make_context("projector", settings)
    process = asyncio.create_task(main(context))
    reader = ViewReader(functions, namespace, [CELL])

    async def is_there() -> bool:
        try:
            return (await reader.summary(CELL)).version == 200
        except (ViewRebuilding, ViewUnavailable):
            return False

    await eventually(is_there, within_s=20)
    assert await compare_view(reader, history.state) == []
    await eventually(lambda: context.health.progress.cursors == {f"{namespace}.decisions/0": 200})
    assert context.health.progress.version == {CELL: 200}
    assert context.health.is_ready
    context.stopping.set()
    await process
    await functions.stop()
    await log.stop()
