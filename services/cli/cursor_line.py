"""Asks one service for its cursors, again and again, on one connection and at the least cost.

A stepped replay asks each service some ten times a step. A general client spends more on that than the services do.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from shared.runtime.stack.http_get import Unanswered
from shared.runtime.stack.ports import LOCAL

REQUEST = b"GET /cursors HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


class CursorLine(asyncio.Protocol):
    """One connection. One question at a time."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self._received = b""
        self._body: bytes = b""
        self._parsed: dict[str, Any] = {}

    async def connect(self, port: int) -> None:
        """Open the connection."""
        await asyncio.get_running_loop().create_connection(lambda: self, LOCAL, port)

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    async def ask(self) -> dict[str, Any]:
        """The service's answer; the same object as long as it says the same. Raises Unanswered when it is gone."""
        if self._transport is None or self._transport.is_closing():
            raise Unanswered(f"{self.service} has closed its connection")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(REQUEST)
        body = await self._waiting
        if body != self._body:
            self._body, self._parsed = body, json.loads(body)
        return self._parsed

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
        """Nobody will answer any more."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Unanswered(f"{self.service} has closed its connection: {error}"))
