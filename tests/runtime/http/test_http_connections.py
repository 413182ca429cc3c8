from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from fallow.shared.runtime.http.connections import CONNECTIONS_MAX, REQUEST_BYTES_MAX, BoundedHttp
from fallow.shared.runtime.http.door import CONNECTION_S, Door
from fallow.shared.runtime.http.health import Health, HealthServer
from fallow.shared.runtime.http.turns import BANKED_S, REST
from fallow.shared.runtime.stack.ports import LOCAL
from fallow.shared.runtime.telemetry import Telemetry
from tests.contract.eventually import eventually

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ImpatientHttp(BoundedHttp):
    request_s_max = 0.3


async def served(http: type[BoundedHttp]) -> AsyncIterator[int]:
    server = HealthServer(Health("tiny", "tiny-1", Telemetry("tiny").registry), LOCAL, 0, http)
    await server.start()
    yield server.port
    await server.stop()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async for port in served(BoundedHttp):
        yield port


@pytest.fixture
async def impatient_port() -> AsyncIterator[int]:
    async for port in served(ImpatientHttp):
        yield port


async def opened(port: int, said: bytes, count: int) -> list[Connection]:
    connections = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(LOCAL, port)
        writer.write(said)
        connections.append((reader, writer))
    return connections


async def is_open(connection: Connection) -> bool:
    """Whether the other side has not ended it, when it has read all that had come."""
    try:
        async with asyncio.timeout(0.05):
            await connection[0].read()
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    return False


async def status(port: int) -> int:
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"http://{LOCAL}:{port}/healthz")).status_code


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nx: ", b"GET /healthz HTTP/1.1\r\n\r\n"])
async def test_many_connections_do_not_all_stay_open_and_keep_no_probe_out(port: int, said: bytes) -> None:
    held = await opened(port, said, 3 * CONNECTIONS_MAX)
    assert await status(port) == 200
    assert sum(await asyncio.gather(*map(is_open, held))) <= CONNECTIONS_MAX
    for _, writer in held:
        writer.close()


def at_once(port: int, said: bytes, count: int) -> list[socket.socket]:
    """Connections that are all there before the loop has looked at the first."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection((LOCAL, port), timeout=1)
        connection.sendall(said)
        connection.setblocking(False)
        connections.append(connection)
    return connections


async def first_line(connection: socket.socket) -> bytes:
    reader, writer = await asyncio.open_connection(sock=connection)
    line = await reader.readline()
    writer.close()
    return line


async def test_all_that_ask_at_once_are_answered_though_they_are_more_than_the_places(port: int) -> None:
    asking = at_once(port, b"GET /healthz HTTP/1.1\r\n\r\n", 4 * CONNECTIONS_MAX)
    assert {await first_line(connection) for connection in asking} == {b"HTTP/1.1 200 OK\r\n"}


async def test_connections_come_in_by_turns_however_many_stand_before_the_door() -> None:
    listener, made = socket.create_server((LOCAL, 0)), []

    def protocol() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    serving = asyncio.create_task(Door(listener, protocol, lambda: CONNECTIONS_MAX).serve())
    await asyncio.sleep(0.1)
    began_s, count = time.perf_counter(), 300
    standing = at_once(listener.getsockname()[1], b"", count)
    await eventually(lambda: len(made) == count)
    assert time.perf_counter() - began_s >= (1 + REST) * CONNECTION_S * (count - 1) - BANKED_S
    serving.cancel()
    for each in (listener, *standing):
        each.close()


async def test_the_connection_that_was_silent_longest_makes_room(port: int) -> None:
    asking, *silent = await opened(port, b"", CONNECTIONS_MAX)
    asking[1].write(b"GET /admin HTTP/1.1\r\n\r\n")
    assert (await asking[0].readuntil(b"}")).startswith(b"HTTP/1.1 404 ")
    silent += await opened(port, b"", 1)
    await asyncio.sleep(0.3)
    assert not await is_open(silent[0])
    assert await is_open(asking)
    assert await is_open(silent[1])
    for _, writer in (asking, *silent):
        writer.close()


HALVES = [b"GET /healthz HTTP/1.1\r\nx: ", b"POST /x HTTP/1.1\r\ncontent-length: 9\r\n\r\n"]
ONE = b"GET /admin HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("said", [b"", *HALVES, *[ONE + half for half in HALVES]])
async def test_a_request_that_is_not_whole_in_time_ends_its_connection(impatient_port: int, said: bytes) -> None:
    [connection] = await opened(impatient_port, said, 1)
    await asyncio.sleep(3 * ImpatientHttp.request_s_max)
    assert not await is_open(connection)
    connection[1].close()


async def test_a_connection_may_rest_between_two_requests(impatient_port: int) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, impatient_port)
    for _ in range(2):
        writer.write(b"GET /admin HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 404 ")
        await asyncio.sleep(3 * ImpatientHttp.request_s_max)
    writer.close()


@pytest.mark.parametrize("line", [b"x: y\r\n", b"y"])
async def test_a_request_whose_head_has_no_end_is_refused_and_its_connection_closed(port: int, line: bytes) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, port)
    writer.write(b"GET /healthz HTTP/1.1\r\nx: " + line * (REQUEST_BYTES_MAX // len(line)))
    assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_a_request_that_is_too_long_is_refused_also_where_its_end_comes_apart(port: int) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, port)
    head = b"GET /healthz HTTP/1.1\r\nx: " + b"y" * REQUEST_BYTES_MAX + b"\r\n\r\n"
    for piece in (head[:10_000], head[10_000:]):
        writer.write(piece)
        await asyncio.sleep(0.1)
    assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_many_requests_over_one_connection_may_be_long_together(port: int) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, port)
    for _ in range(40):
        writer.write(b"GET /admin HTTP/1.1\r\nhost: h\r\nx: " + b"y" * 1_000 + b"\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 404 ")
    writer.close()


async def test_of_more_than_is_read_at_once_nothing_is_answered(port: int) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, port)
    writer.write(ONE * (REQUEST_BYTES_MAX // len(ONE) + 1))
    assert (await reader.read()).count(b"HTTP/1.1 ") == 1
    writer.close()


async def test_a_request_before_the_answer_to_the_last_one_ends_the_connection(port: int) -> None:
    reader, writer = await asyncio.open_connection(LOCAL, port)
    writer.write(ONE * 500)
    assert (await reader.read()).count(b"HTTP/1.1 404 ") <= 1
    writer.close()
