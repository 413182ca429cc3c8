"""The connections of a service's HTTP port: few, short in what they ask, and none that waits for ever.

Whoever reaches the port may open connections and say nothing: a worker on the machine of its agent, too. Each holds a
file descriptor of the process, and without any left an agent can neither write its lease nor start a run. So there are
at most `CONNECTIONS_MOST`. One more closes the one that was longest without a whole request: a probe gets in also
beside connections that are silent, that bring a head byte by byte, or that do not read their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_BYTES_MOST = 16 * 1024
CONNECTIONS_MOST = 64
ACCEPTED_AT_ONCE = 16
"""How many connections asyncio accepts before the first of them is counted: it asks nobody between."""

CONNECTION = "fallow.connection"
"""Under this name the application is told of the connection of a request."""


class BoundedHttp(HttpToolsProtocol):
    """HTTP whose requests are short and whole soon, over few connections: the parser itself would gather a head without
    end.
    """

    request_s_most = 10.0
    """How long a connection may take until its first request is whole, or a later one that has begun."""

    _request_bytes = 0
    _whole_s = 0.0  # loop time of the newest whole request; before the first one, of the connection
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """One more, which another makes room for where there are too many."""
        super().connection_made(transport)
        self._whole_s = self.loop.time()
        self._await_request()
        others: list[Any] = [other for other in self.connections if other is not self]
        if len(others) >= CONNECTIONS_MOST:
            min(others, key=_silent_since).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, and nothing is awaited from it."""
        self._await_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What came of a request, which ends the connection where it is too much. What comes at once is not even read
        then: thousands of requests in one piece would hold up the whole process.
        """
        self._request_bytes += len(data)
        if self._request_bytes <= REQUEST_BYTES_MOST:
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
        self.scope["extensions"] = {CONNECTION: {"transport": self.transport}}
        if self._late is None:
            self._await_request()

    def on_message_complete(self) -> None:
        """The next request begins anew."""
        self._request_bytes = 0
        self._whole_s = self.loop.time()
        self._await_nothing()
        super().on_message_complete()

    def give_up(self) -> None:
        """Closes it at once, whatever was still to be sent."""
        self.connections.discard(self)
        self.transport.abort()

    def _await_request(self) -> None:
        self._late = self.loop.call_later(self.request_s_most, self.give_up)

    def _await_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _silent_since(connection: BoundedHttp) -> float:
    return connection._whole_s  # noqa: SLF001 - another one of the same class


def is_gone(scope: MutableMapping[str, Any]) -> Callable[[], bool]:
    """Tells whether nobody waits for the answer to this request any more."""
    transport: asyncio.Transport = scope["extensions"][CONNECTION]["transport"]
    return transport.is_closing
