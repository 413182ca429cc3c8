"""The sender of the benchmarks on a real Kafka: an open loop, whatever holds it up."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from fallow.bench.load.baseline import PARTITIONS, plain
from fallow.bench.load.sender import Sender
from tests.contract.eventually import eventually

pytestmark = pytest.mark.real_kafka

RATE, HELD_UP_S = 200, 0.4


async def hold_up() -> None:
    await asyncio.sleep(0.2)
    until_s = time.monotonic() + HELD_UP_S
    while time.monotonic() < until_s:
        pass


async def partitioned(kafka: str) -> str:
    topic, admin = f"due{time.time_ns()}", AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()
    return topic


async def records(kafka: str, topic: str) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
    await consumer.start()
    try:
        ends = await consumer.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
        return sum(ends.values())
    finally:
        await consumer.stop()


async def has_records(kafka: str, topic: str, count: int) -> bool:
    return await records(kafka, topic) == count


async def test_jobs_are_due_by_the_schedule_while_their_sender_is_held_up(kafka: str) -> None:
    topic = await partitioned(kafka)
    sender = Sender(kafka, topic)
    await sender.start()
    try:
        await asyncio.gather(sender.send(list(plain(RATE)), RATE), hold_up())
    finally:
        await sender.stop()
    steps = [after - before for before, after in zip(sender.due_s, sender.due_s[1:], strict=False)]
    late_s = [handed - due for due, handed in zip(sender.due_s, sender.handed_s, strict=True)]
    assert steps == pytest.approx([1 / RATE] * (RATE - 1), abs=1e-6)
    assert max(late_s) >= HELD_UP_S * 0.9
    assert min(late_s) >= 0


async def test_a_job_comes_for_each_event_and_is_due_when_that_was(kafka: str) -> None:
    topic = await partitioned(kafka)
    sender, events = Sender(kafka, topic), [(99, 1.0)]
    await sender.start()
    try:
        sending = asyncio.create_task(sender.send_for_each(list(plain(3)).__getitem__, events, 3_600.0))
        await asyncio.sleep(0)  # it has begun, and waits
        events += [(2, 5.0), (0, 6.0)]
        await eventually(lambda: has_records(kafka, topic, 2))
        sending.cancel()
        await asyncio.wait([sending])
        await sender.send_for_each(list(plain(3)).__getitem__, events, 0.0)  # its time is over
    finally:
        await sender.stop()
    assert list(sender.due_s) == [5.0, 6.0], "what was there before is over"
    assert len(sender.handed_s) == await records(kafka, topic) == 2


async def test_a_cancel_follows_its_job_and_is_no_job(kafka: str) -> None:
    topic = await partitioned(kafka)
    job, cancel = plain(2)
    sender = Sender(kafka, topic)
    await sender.start()
    try:
        await sender.send([replace(job, cancel=cancel, cancel_after_s=0.5)], 100)
        before = await records(kafka, topic)
        await sender.cancel_what_is_left()
    finally:
        await sender.stop()
    assert (before, await records(kafka, topic)) == (1, 2)
    assert len(sender.due_s) == len(sender.handed_s) == 1
