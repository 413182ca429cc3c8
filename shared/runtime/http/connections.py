"""The connections of a service's HTTP port: few, short in what they ask, and none that waits for ever.

Any client that reaches the port may open connections and say nothing: a worker on the machine of its agent, too. Each
holds a file descriptor of the process, and without any left an agent can neither write its lease nor start a run. So
there are at most `CONNECTIONS_MAX`. One more closes the one that was longest without a whole request: a probe gets in
also beside connections that are silent, that bring a head byte by byte, or that do not read their answers. One that
waits for its answer is never closed to make room; a client that comes while all of them wait stands before the door
(door.py). So that a probe gets in beside many that ask for the costly metrics, these keep at most `SCRAPES_MAX` places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_BYTES_MAX = 16 * 1024
CONNECTIONS_MAX = 64
FRESH_S = 0.05
"""So long a loop may take until it reads what a new connection has brought."""

SCRAPES_MAX = 32
SCRAPED = "/metrics"

CONNECTION = "fallow.connection"
"""The name under which the application finds the connection of a request."""


class BoundedHttp(HttpToolsProtocol):
    """HTTP whose requests are short and whole soon, over few connections: the parser itself would gather a head without
    end.
    """

    request_s_max = 10.0
    """How long a connection may take until its first request is whole, or a later one that has begun."""

    _request_bytes = 0
    _is_whole = False
    _whole_s = 0.0  # loop time of the newest whole request; before the first one, of the connection
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more, which another makes room for where there are too many."""
        super().connection_made(transport)
        self._whole_s = self.loop.time()
        self._await_request()
        others: list[Any] = [other for other in self.connections if other is not self]
        if len(others) >= CONNECTIONS_MAX:
            self._make_room(others)

    def _make_room(self, others: list[Any]) -> None:
        idle: list[Any] = [other for other in others if not other.is_waiting]
        scrapes: list[Any] = [other for other in others if other.is_waiting and other.is_scrape]
        if idle:
            min(idle, key=_silent_since).give_up()
        elif len(scrapes) > SCRAPES_MAX:
            max(scrapes, key=_silent_since).give_up()  # who came first has its turn
        else:
            self.give_up()

    @property
    def is_waiting(self) -> bool:
        """Whether its request is whole and no byte of the answer is sent yet. So it is taken of one
        that is so new that its request has not been read yet.
        """
        cycle: Any = self.cycle
        if cycle is None and self._request_bytes == 0:
            return self.loop.time() < self._whole_s + FRESH_S
        return self._is_whole and not cycle.response_started and not self.transport.is_closing()

    @property
    def is_scrape(self) -> bool:
        """Whether it waits for what is costly."""
        return self._is_whole and self.scope["path"] == SCRAPED

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, and nothing is awaited from it."""
        self._await_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What came of a request, which ends the connection where it is too much. What comes at once is not even read
        then: thousands of requests in one piece would hold up the whole process.
        """
        self._request_bytes += len(data)
        if self._request_bytes <= REQUEST_BYTES_MAX:
            super().data_received(data)
        elif not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def on_message_begin(self) -> None:
        """The rest of this request has to follow soon. Raises ValueError, by which the parser gives the connection up,
        where an earlier one has no answer yet: no probe asks so, and each of many in one piece would have its own task.
        """
        before: Any = self.cycle  # None ahead of the first request, whatever its type says
        if before is not None and not before.response_complete:
            raise ValueError("a request came before the answer to the one before it")
        super().on_message_begin()
        self._is_whole = False
        self.scope["extensions"] = {CONNECTION: {"transport": self.transport}}
        if self._late is None:
            self._await_request()

    def on_message_complete(self) -> None:
        """The next request begins anew."""
        self._request_bytes = 0
        self._is_whole = True
        self._whole_s = self.loop.time()
        self._await_nothing()
        super().on_message_complete()

    def give_up(self) -> None:
        """Closes it at once, whatever was still to be sent."""
        self.connections.discard(self)
        self.transport.abort()

    def _await_request(self) -> None:
        self._late = self.loop.call_later(self.request_s_max, self.give_up)

    def _await_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def places_left(connections: Iterable[Any]) -> int:
    """How many more may come in: for each of them there is a place, or a connection that makes room."""
    waiting = [connection for connection in connections if connection.is_waiting]
    scrapes = len([connection for connection in waiting if connection.is_scrape])
    return CONNECTIONS_MAX - len(waiting) + max(0, scrapes - SCRAPES_MAX)


def _silent_since(connection: BoundedHttp) -> float:
    return connection._whole_s  # noqa: SLF001 - another one of the same class


def is_gone(scope: MutableMapping[str, Any]) -> Callable[[], bool]:
    """Tells whether the client no longer waits for the answer to this request."""
    transport: asyncio.Transport = scope["extensions"][CONNECTION]["transport"]
    return transport.is_closing
