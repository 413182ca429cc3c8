"""The logs that are held to one contract: the one in memory, the one of the fault worlds and the one on Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fallow.shared.log.port import Log
from tests.contract.worlds.log_worlds import KafkaWorld, MemoryWorld, World
from tests.contract.worlds.simulated_world import SimulatedWorld


@pytest_asyncio.fixture(params=["memory", "simulated", pytest.param("kafka", marks=pytest.mark.real_kafka)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    if request.param == "simulated":
        simulated = SimulatedWorld()
        yield simulated
        await simulated.close()
        return
    world = KafkaWorld(request.getfixturevalue("kafka"))
    await world.start()
    yield world
    await world.close()


@pytest_asyncio.fixture
async def log(world: World) -> Log:
    return await world.log()
