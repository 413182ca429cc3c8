"""HTTP GET on a connection that stays open: a stepped replay asks every service for its cursors many times a second,
and a full client costs more than the question. httpx takes more than ten times the processor time for each (2.3 ms
beside 0.15 ms on the machine that was measured), and every installation would need it, since `fallow up` asks, too.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fallow.shared.runtime.errors.system_words import words_of_system

ANSWER_WAIT_S = 5.0


class Unanswered(Exception):
    """No answer came: the process is gone, starting, or stuck."""


class KeptConnection:
    """One connection to one local server that speaks HTTP/1.1 and tells the length of its bodies."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get_json(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of an answer; Unanswered when there is none. Opens a new connection when the old one is
        gone.
        """
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                return await self._ask_again_if_closed(path)
        except (OSError, EOFError, TimeoutError) as error:
            await self.close()
            why = words_of_system(error) or "no answer in time"
            raise Unanswered(f"http://{self._host}:{self._port}{path}: {why}") from error

    async def close(self) -> None:
        """Closes the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask_again_if_closed(self, path: str) -> tuple[int, dict[str, Any]]:
        """A server closes a connection on which nothing came for a minute; the next question finds that out."""
        if self._streams is not None:
            try:
                return await self._ask(path)
            except (EOFError, ConnectionError):
                await self.close()
        return await self._ask(path)

    async def _ask(self, path: str) -> tuple[int, dict[str, Any]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:", 1)[1].split("\r\n", 1)[0])
        body = await reader.readexactly(length)
        return int(head.split(" ", 2)[1]), json.loads(body)
