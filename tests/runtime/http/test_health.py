from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from fallow.shared.runtime.http.health import Fence, Health, HealthServer
from fallow.shared.runtime.stack.http_get import KeptConnection, Unanswered
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.telemetry import Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry("tiny")


@pytest.fixture
def health(telemetry: Telemetry) -> Health:
    return Health("tiny", "tiny-1", telemetry.registry)


@pytest.fixture
async def port(health: Health) -> AsyncIterator[int]:
    server = HealthServer(health, LOCAL, 0)
    await server.start()
    yield server.port
    await server.stop()


@pytest.fixture
async def client(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{LOCAL}:{port}") as client:
        yield client


async def test_a_service_is_not_ready_until_it_says_so_and_tells_why(health: Health, client: httpx.AsyncClient) -> None:
    health.not_ready("waiting for Kafka: refused")
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "waiting for Kafka: refused"
    health.ready()
    assert (await client.get("/readyz")).status_code == 200


def _of_cells(health: Health) -> tuple[int, int]:
    return health.answer("/readyz/cell-a")[0], health.answer("/readyz/cell-b")[0]


def test_what_is_about_the_whole_service_keeps_each_cell_from_being_ready(health: Health) -> None:
    health.ready()
    health.progress.version.update({"cell-a": 1, "cell-b": 1})
    assert _of_cells(health) == (200, 200)
    health.not_ready("waiting for Kafka at a:1: refused", "kafka")
    assert _of_cells(health) == (503, 503)
    assert b'"reason":"waiting for Kafka at a:1: refused"' in health.answer("/readyz/cell-b")[2]
    health.ready("kafka")
    health.not_ready("stopping", "stop")
    assert _of_cells(health) == (503, 503)


def test_what_is_about_one_cell_leaves_the_others_ready(health: Health) -> None:
    health.ready()
    health.progress.version.update({"cell-a": 1, "cell-b": 1})
    health.not_ready("the records are away", "records", cell="cell-a")
    assert _of_cells(health) == (503, 200)
    health.not_ready("the records are away", "records")
    assert _of_cells(health) == (503, 503)
    health.ready("records")
    health.fence("cell-a", Fence("damaged", "fallow.decisions", 0, 7))
    assert _of_cells(health) == (503, 200)


async def test_what_a_person_should_look_at_is_noted_and_leaves_the_service_ready(
    health: Health, client: httpx.AsyncClient
) -> None:
    health.ready()
    health.noted("leases", "many nodes are silent")
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["notes"]) == (200, ["many nodes are silent"])
    health.noted("leases")
    assert (await client.get("/readyz")).json()["notes"] == []


async def test_a_service_that_waits_is_healthy_for_as_long_as_its_loop_turns(
    health: Health, client: httpx.AsyncClient
) -> None:
    health.ready()
    health.not_ready("waiting for Kafka at a:1: refused", "kafka")
    health.fence("cell-a", Fence("damaged", "fallow.decisions", 0, 7))
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"turns": True})


async def test_cursors_show_how_far_a_service_has_got(health: Health, client: httpx.AsyncClient) -> None:
    health.handled("fallow.jobs", 0, 7)
    health.progress.next_due_ms = 1_500
    health.progress.version["cell-a"] = 3
    body = (await client.get("/cursors")).json()
    assert body.pop("rss_mb") > 1
    assert body == {
        "service": "tiny",
        "instance": "tiny-1",
        "cursors": {"fallow.jobs/0": 7},
        "next_due_ms": 1_500,
        "version": {"cell-a": 3},
        "busy": False,
    }


async def test_metrics_are_those_of_this_process_only(telemetry: Telemetry, client: httpx.AsyncClient) -> None:
    telemetry.records_read.labels("fallow.jobs").inc(5)
    text = (await client.get("/metrics")).text
    assert 'fallow_records_read_total{topic="fallow.jobs"} 5.0' in text
    assert "process_resident_memory_bytes" in text


async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/admin")).status_code == 404


async def test_a_probe_reads_and_nothing_else(client: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for path in ("/readyz", "/metrics", "/admin"):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers.get("allow")) == (405, "GET, HEAD"), (method, path)
    head = await client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


async def test_one_connection_asks_many_times(health: Health, port: int) -> None:
    connection = KeptConnection(LOCAL, port)
    health.handled("fallow.jobs", 0, 1)
    first = await connection.get_json("/cursors")
    health.handled("fallow.jobs", 0, 2)
    second = await connection.get_json("/cursors")
    await connection.close()
    assert [first[1]["cursors"], second[1]["cursors"]] == [{"fallow.jobs/0": 1}, {"fallow.jobs/0": 2}]


async def test_nobody_there_is_said_so() -> None:
    with pytest.raises(Unanswered):
        await KeptConnection(LOCAL, free_port()).get_json("/cursors")


async def test_a_connection_that_the_server_has_closed_is_opened_again() -> None:
    asked: list[str] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(answer_once, LOCAL, 0)
    connection = KeptConnection(LOCAL, server.sockets[0].getsockname()[1])
    answers = [await connection.get_json("/cursors") for _ in range(3)]
    await connection.close()
    server.close()
    assert answers == [(200, {})] * 3
    assert len(asked) == 3
