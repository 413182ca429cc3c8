"""Topics are created, grown and compared on a real Kafka."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shared.log.topic_admin import check_topics, create_topics
from shared.log.topics import DifferenceKind, expected_topics, parse_topics

pytestmark = pytest.mark.real_kafka

FILE = parse_topics((Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml").read_text(encoding="utf-8"))


async def test_topics_are_created_once_and_then_found_as_declared(kafka: str) -> None:
    specs = expected_topics(FILE, f"ns{time.time_ns()}", 2, ["acme"])
    before = await check_topics(kafka, specs)
    assert before.must_stop
    assert {d.kind for d in before.differences} == {DifferenceKind.MISSING}
    assert (await create_topics(kafka, specs)).differences == ()
    assert (await create_topics(kafka, specs)).differences == ()
    assert not (await check_topics(kafka, specs)).must_stop


async def test_a_new_cell_adds_partitions_and_a_removed_one_is_told(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    one, two = expected_topics(FILE, namespace, 1, []), expected_topics(FILE, namespace, 2, [])
    await create_topics(kafka, one)
    assert (await create_topics(kafka, two)).differences == ()
    after = await create_topics(kafka, one)
    assert after.must_stop
    assert {d.kind for d in after.differences} == {DifferenceKind.TOO_MANY_PARTITIONS}


async def test_other_settings_are_told_and_left_alone(kafka: str) -> None:
    namespace = f"ns{time.time_ns()}"
    await create_topics(kafka, expected_topics(FILE, namespace, 1, [], replicas=1))
    report = await create_topics(kafka, expected_topics(FILE, namespace, 1, [], replicas=3))
    assert report.must_stop
    assert f"{namespace}.jobs has min.insync.replicas=1, it should be 2" in [d.text for d in report.differences]
