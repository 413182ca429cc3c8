"""A patient reader is woken seldom, at a real broker; one in a hurry each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.port import Log, Outgoing
from tests.contract.worlds.log_worlds import KafkaWorld

pytestmark = pytest.mark.real_kafka

RECORDS = 20


@pytest_asyncio.fixture
async def world(kafka: str) -> AsyncIterator[KafkaWorld]:
    world = KafkaWorld(kafka)
    await world.start()
    yield world
    await world.close()


async def polls_for_a_trickle(log: Log, topic: str, patient_ms: int) -> int:
    """How many polls bring RECORDS records that come one by one, 20 ms apart."""
    reader = log.reader({(topic, 0): 0}, patient_ms=patient_ms)
    await reader.start()

    async def trickle() -> None:
        for _ in range(RECORDS):
            await log.append(Outgoing(topic, b"v", partition=0))
            await asyncio.sleep(0.02)

    writing, found, polls = asyncio.create_task(trickle()), 0, 0
    try:
        async with asyncio.timeout(10):
            while found < RECORDS:
                records = await reader.poll(wait_ms=2_000)
                found, polls = found + len(records), polls + bool(records)
        await writing
        return polls
    finally:
        await reader.stop()


async def test_a_patient_reader_takes_many_records_at_a_time(world: KafkaWorld) -> None:
    log, hasty, patient = await world.log(), await world.topic(1), await world.topic(1)
    assert await polls_for_a_trickle(log, hasty, patient_ms=0) > RECORDS // 2
    assert await polls_for_a_trickle(log, patient, patient_ms=300) < RECORDS // 2
