"""The probe that runs beside each service in a container."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fallow.shared.runtime.http.health import Health, HealthServer
from fallow.shared.runtime.http.probe import probe
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.telemetry import Telemetry

TOP = Path(__file__).parents[3]


@pytest.fixture
def health() -> Health:
    return Health("tiny", "tiny-1", Telemetry("tiny").registry)


@pytest.fixture
async def port(health: Health) -> AsyncIterator[int]:
    server = HealthServer(health, LOCAL, 0)
    await server.start()
    yield server.port
    await server.stop()


async def test_the_probe_tells_what_the_service_says_of_itself(health: Health, port: int) -> None:
    health.not_ready("waiting for Kafka")
    is_good, text = await asyncio.to_thread(probe, port, "/readyz")
    assert (is_good, "waiting for Kafka" in text) == (False, True)
    health.ready()
    assert (await asyncio.to_thread(probe, port, "/readyz"))[0]


async def test_the_probe_ends_with_a_code_that_an_engine_understands(health: Health, port: int) -> None:
    health.ready()
    command = [sys.executable, "-S", "-m", "fallow.shared.runtime.http.probe"]
    environment = {**os.environ, "FALLOW_HTTP_PORT": str(port)}
    ready = await asyncio.create_subprocess_exec(*command, cwd=TOP, env=environment, stdout=subprocess.DEVNULL)
    assert await ready.wait() == 0
    health.not_ready("stopping")
    stopping = await asyncio.create_subprocess_exec(*command, cwd=TOP, env=environment, stdout=subprocess.DEVNULL)
    assert await stopping.wait() == 1


def test_a_port_on_which_nobody_listens_is_no_good_answer() -> None:
    assert probe(free_port(), "/healthz")[0] is False
