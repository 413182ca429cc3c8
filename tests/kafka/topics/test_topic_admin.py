"""Topics are created, grown and compared on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import KafkaError, Producer

from fallow.shared.log.admin.topic_admin import check_topics, create_topics, flushes_each_record, missing_topics
from fallow.shared.log.admin.topics import DifferenceKind, expected_topics, parse_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.port import LogUnavailable, Record

pytestmark = pytest.mark.real_kafka

FILE = parse_topics((Path(__file__).parents[3] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))


async def test_topics_are_created_once_and_then_found_as_declared(kafka: str) -> None:
    specs = expected_topics(FILE, f"ns{time.time_ns()}", 2, ["acme"])
    before = await check_topics(kafka, specs)
    assert before.must_stop
    assert {d.kind for d in before.differences} == {DifferenceKind.MISSING}
    assert (await create_topics(kafka, specs)).differences == ()
    assert (await create_topics(kafka, specs)).differences == ()
    assert not (await check_topics(kafka, specs)).must_stop


@pytest.mark.parametrize("compression", ["gzip", "lz4", "snappy", "zstd"])
async def test_senders_may_compress_as_they_like(kafka: str, compression: str) -> None:
    namespace = f"ns{time.time_ns()}"
    await create_topics(kafka, expected_topics(FILE, namespace, 1, []))
    topic = f"{namespace}.nodes"
    sender = Producer({"bootstrap.servers": kafka, "compression.type": compression, "linger.ms": 50})
    for _ in range(100):
        sender.produce(topic, b"v" * 1000, key=b"k")
    await asyncio.to_thread(sender.flush, 10)
    log = KafkaLog(kafka, "test")
    reader = log.reader({(topic, 0): 0})
    await reader.start()
    found: list[Record] = []
    async with asyncio.timeout(10):
        while len(found) < 100:
            found.extend(await reader.poll())
    await reader.stop()
    assert {record.value for record in found} == {b"v" * 1000}


async def test_a_batch_that_unpacks_to_too_much_is_refused_by_the_broker(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    await create_topics(kafka, expected_topics(FILE, namespace, 1, []))
    sender = Producer({"bootstrap.servers": kafka, "compression.type": "gzip", "message.max.bytes": 50_000_000})
    refused: list[KafkaError | None] = []
    sender.produce(
        f"{namespace}.nodes", b"0" * 20_000_000, key=b"k", on_delivery=lambda error, _message: refused.append(error)
    )
    await asyncio.to_thread(sender.flush, 10)
    assert [error and error.code() for error in refused] == [KafkaError.MSG_SIZE_TOO_LARGE]


async def test_a_new_cell_adds_partitions_and_a_removed_one_is_told_and_stops_nobody(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    one, two = expected_topics(FILE, namespace, 1, []), expected_topics(FILE, namespace, 2, [])
    await create_topics(kafka, one)
    assert (await create_topics(kafka, two)).differences == ()
    after = await create_topics(kafka, one)
    assert not after.must_stop
    assert {d.kind for d in after.differences} == {DifferenceKind.TOO_MANY_PARTITIONS}


async def test_other_settings_are_told_and_left_alone(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    await create_topics(kafka, expected_topics(FILE, namespace, 1, [], replicas=1))
    report = await create_topics(kafka, expected_topics(FILE, namespace, 1, [], replicas=3))
    assert report.must_stop
    assert f"{namespace}.jobs has min.insync.replicas=1, it should be 2" in [d.text for d in report.differences]


async def test_how_long_records_are_kept_is_set_anew_and_what_else_was_set_stays(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    before, after = (
        expected_topics(file, namespace, 1, []) for file in (FILE, FILE.with_retention({"jobs": 400, "nodes": 300}))
    )
    await create_topics(kafka, before)
    differing = await check_topics(kafka, after)
    assert sorted(found.topic for found in differing.differences) == [f"{namespace}.jobs", f"{namespace}.nodes"]
    assert not differing.must_stop
    assert (await create_topics(kafka, after)).differences == ()
    assert {found.topic for found in (await check_topics(kafka, before)).differences} == {
        f"{namespace}.jobs",
        f"{namespace}.nodes",
    }


async def test_topics_that_are_not_there_are_named(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    await create_topics(kafka, expected_topics(FILE, namespace, 1, []))
    assert await missing_topics(kafka, expected_topics(FILE, namespace, 1, [])) == []
    assert await missing_topics(kafka, expected_topics(FILE, namespace, 1, ["acme"])) == [
        f"{namespace}.submissions.acme"
    ]


@pytest.mark.parametrize(("messages", "flushes"), [("1", True), ("100", False)])
async def test_a_topic_is_called_durable_only_where_the_broker_flushes_each_of_its_records(
    kafka: str, messages: str, *, flushes: bool
) -> None:
    name, admin = f"flushed{time.time_ns()}", AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs={"flush.messages": messages})])
    finally:
        await admin.close()
    assert await told_when_known(kafka, name) is flushes


async def told_when_known(kafka: str, topic: str) -> bool:
    """A topic is known to a broker a moment after the answer that it was made."""
    end_s = time.monotonic() + 10
    while True:
        try:
            return await flushes_each_record(kafka, topic)
        except LogUnavailable:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.05)
