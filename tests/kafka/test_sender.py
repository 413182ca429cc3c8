"""The sender of the benchmarks on a real Kafka: an open loop, whatever holds it up."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.cli.bench.baseline import PARTITIONS, plain
from services.cli.bench.sender import Sender

pytestmark = pytest.mark.real_kafka

RATE, HELD_UP_S = 200, 0.4


async def hold_up() -> None:
    await asyncio.sleep(0.2)
    time.sleep(HELD_UP_S)  # noqa: ASYNC251 - the whole process stands still, as a busy machine has it


async def test_jobs_are_due_by_the_schedule_while_their_sender_is_held_up(kafka: str) -> None:
    topic, admin = f"due{time.time_ns()}", AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()
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
