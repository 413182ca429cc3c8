"""Asks one service for its cursors, again and again, on one connection and at the least cost.

A stepped replay asks each service some ten times a step. A general client spends more on that than the services do.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from fallow.shared.runtime.errors.system_words import words_of_system
from fallow.shared.runtime.stack.http_get import Unanswered
from fallow.shared.runtime.stack.ports import LOCAL

REQUEST = b"GET /cursors HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


class CursorLine(asyncio.Protocol):
    """One connection at a time. One question at a time.

    A service closes a connection that has been silent for long. The services that only follow are asked at the end of
    a run, so the next question then opens another one.
    """

    def __init__(self, service: str, port: int) -> None:
        self.service = service
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self._received = b""
        self._body: bytes = b""
        self._parsed: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, for all that is known here."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    async def ask(self) -> dict[str, Any]:
        """The service's answer; the same object as long as it says the same. Raises Unanswered when it is gone."""
        was_open = self.is_open
        try:
            body = await self._ask_once()
        except Unanswered:
            if not was_open:
                raise
            body = await self._ask_once()  # it may have closed the silent connection just as the question left
        if body != self._body:
            self._body, self._parsed = body, json.loads(body)
        return self._parsed

    async def _ask_once(self) -> bytes:
        loop = asyncio.get_running_loop()
        if not self.is_open:
            self._received = b""
            try:
                await loop.create_connection(lambda: self, LOCAL, self._port)
            except OSError as error:
                raise Unanswered(f"{self.service} takes no connection: {words_of_system(error)}") from error
        self._waiting = loop.create_future()
        assert self._transport is not None, "a connection that was made has told its transport"
        self._transport.write(REQUEST)
        return await self._waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        """Gather one whole answer."""
        self._received += data
        head, found, body = self._received.partition(HEAD_END)
        if found and len(body) >= int(head.lower().split(LENGTH, 1)[1].split(b"\r\n", 1)[0]):
            self._received = b""
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(body)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone: no answer comes on it any more."""
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            said = f": {error}" if error else ""
            self._waiting.set_exception(Unanswered(f"{self.service} has closed its connection{said}"))
