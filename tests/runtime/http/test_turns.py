"""However many ask a service for its metrics, its work goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from fallow.shared.runtime.http.connections import CONNECTIONS_MAX
from fallow.shared.runtime.http.health import Health, HealthServer
from fallow.shared.runtime.stack.ports import LOCAL
from tests.contract.eventually import eventually

CLIENTS = 20
SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"


class Costly(Collector):
    """Metrics that take long, and know in which turn of the loop they were made."""

    def __init__(self) -> None:
        self.turn = 0
        self.made_in: list[int] = []

    def collect(self) -> Iterable[Metric]:
        self.made_in.append(self.turn)
        until_s = time.perf_counter() + 0.005
        while time.perf_counter() < until_s:
            pass  # work that holds the loop up
        return []

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1


@pytest.fixture
async def costly() -> AsyncIterator[Costly]:
    costly = Costly()
    counting = asyncio.create_task(costly.count_turns())
    yield costly
    counting.cancel()


@pytest.fixture
async def server(costly: Costly) -> AsyncIterator[HealthServer]:
    registry = CollectorRegistry()
    registry.register(costly)
    costly.made_in.clear()  # it is asked once for what it has
    server = HealthServer(Health("tiny", "tiny-1", registry), LOCAL, 0)
    await server.start()
    yield server
    await server.stop()


async def asked(port: int, count: int = CLIENTS) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    clients = [await asyncio.open_connection(LOCAL, port) for _ in range(count)]
    for _, writer in clients:
        writer.write(SCRAPE)
    return clients


async def test_between_two_answers_the_work_has_its_turn(server: HealthServer, costly: Costly) -> None:
    clients = await asked(server.port)
    for reader, _ in clients:
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert len(costly.made_in) == CLIENTS
    assert len({*costly.made_in}) == CLIENTS
    for _, writer in clients:
        writer.close()


async def test_a_probe_waits_for_no_metrics(server: HealthServer, costly: Costly) -> None:
    clients = await asked(server.port)
    reader, writer = await asyncio.open_connection(LOCAL, server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert len(costly.made_in) < CLIENTS / 2
    for _, each in (*clients, (reader, writer)):
        each.close()


async def test_a_probe_gets_in_though_more_wait_for_metrics_than_there_are_places(
    server: HealthServer, costly: Costly
) -> None:
    clients = await asked(server.port, 2 * CONNECTIONS_MAX)
    reader, writer = await asyncio.open_connection(LOCAL, server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert len(costly.made_in) < CONNECTIONS_MAX / 2
    for _, each in (*clients, (reader, writer)):
        each.close()


async def test_who_has_gone_is_answered_no_more_and_keeps_nobody_waiting(server: HealthServer, costly: Costly) -> None:
    for _, writer in await asked(server.port):
        writer.close()
    [(reader, writer)] = await asked(server.port, 1)
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    assert len(costly.made_in) < CLIENTS / 2
    writer.close()


async def test_an_end_with_many_that_wait_is_quick_and_logs_nothing(
    costly: Costly, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    registry.register(costly)
    server = HealthServer(Health("tiny", "tiny-1", registry), LOCAL, 0)
    await server.start()
    clients = await asked(server.port)
    await eventually(lambda: len(costly.made_in) > 1)
    async with asyncio.timeout(5):
        await server.stop()
    answering = [task for task in asyncio.all_tasks() if "run_asgi" in str(task.get_coro())]
    assert (answering, caplog.records) == ([], [])
    for _, writer in clients:
        writer.close()
