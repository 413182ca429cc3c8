"""A line to a service's cursors outlives what a service does with connections: it closes those that stay silent."""

from __future__ import annotations

import asyncio

import pytest

from fallow.local.cursor_line import CursorLine
from fallow.shared.runtime.http.connections import BoundedHttp
from fallow.shared.runtime.http.health import Health, HealthServer
from fallow.shared.runtime.stack.http_get import Unanswered
from fallow.shared.runtime.stack.ports import LOCAL
from fallow.shared.runtime.telemetry import Telemetry
from tests.contract.eventually import eventually


class HastyHttp(BoundedHttp):
    """Waits no longer than this for the first question, and tells of each connection."""

    request_s_max = 0.05
    opened: list[HastyHttp]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        type(self).opened.append(self)


async def serving() -> tuple[HealthServer, list[HastyHttp]]:
    opened: list[HastyHttp] = []
    http = type("HastyHttp", (HastyHttp,), {"opened": opened})
    server = HealthServer(Health("queueing", "queueing-1", Telemetry("queueing").registry), LOCAL, 0, http)
    await server.start()
    return server, opened


async def test_a_line_that_asks_nothing_for_long_is_answered_when_it_asks() -> None:
    server, opened = await serving()
    line = CursorLine("queueing", server.port)
    await asyncio.sleep(3 * HastyHttp.request_s_max)
    assert "cursors" in await line.ask()
    assert len(opened) == 1
    line.close()
    await server.stop()


async def test_a_line_whose_connection_was_closed_between_two_questions_opens_another() -> None:
    server, opened = await serving()
    line = CursorLine("queueing", server.port)
    first = await line.ask()
    opened[0].give_up()
    await eventually(lambda: not line.is_open)
    assert await line.ask() is first
    assert len(opened) == 2
    line.close()
    await server.stop()


async def test_a_line_whose_connection_is_closed_as_the_question_leaves_asks_again() -> None:
    server, opened = await serving()
    line = CursorLine("queueing", server.port)
    first = await line.ask()
    opened[0].give_up()  # the line has not heard of it when it asks
    assert line.is_open
    assert await line.ask() is first
    assert len(opened) == 2
    line.close()
    await server.stop()


async def test_a_line_to_a_service_that_has_ended_says_so() -> None:
    server, _ = await serving()
    line = CursorLine("queueing", server.port)
    await line.ask()
    await server.stop()
    with pytest.raises(Unanswered, match=r"^queueing takes no connection: "):
        await line.ask()
