"""The time of a record is the broker's, whatever its sender says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import expected_topics, parse_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import Record
from fallow.shared.runtime.clocks import wall_ms

pytestmark = pytest.mark.real_kafka

FILE = parse_topics((Path(__file__).parents[3] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))
AN_HOUR_MS = 3_600_000


@pytest.mark.parametrize("name", ["submissions", "submissions.acme", "jobs", "nodes", "decisions"])
async def test_no_record_has_another_time_than_the_broker_s(kafka: str, name: str) -> None:
    namespace, before_ms = f"ns{time.time_ns()}", wall_ms()
    await create_topics(kafka, expected_topics(FILE, namespace, 1, ["acme"]))
    topic, sender = f"{namespace}.{name}", Producer({"bootstrap.servers": kafka})
    for at_ms in (before_ms - AN_HOUR_MS, before_ms - 10 * AN_HOUR_MS):
        sender.produce(topic, b"v", key=b"k", partition=0, timestamp=at_ms)
    await asyncio.to_thread(sender.flush, 10)
    log = KafkaLog(kafka, "test")
    reader = log.reader({(topic, 0): 0})
    await reader.start()
    found: list[Record] = []
    async with asyncio.timeout(10):
        while len(found) < 2:
            found.extend(await reader.poll())
    await reader.stop()
    assert [before_ms <= record.timestamp_ms <= wall_ms() for record in found] == [True, True]
