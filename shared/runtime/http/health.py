"""What a service says of itself over HTTP: /healthz, /readyz, /metrics and /cursors, in its own event loop.

/healthz   200 while the loop turns; no answer where it hangs
/readyz    200 when ready, else 503 with the reason; whether each cell is; and notes of what a person should look at
/readyz/C  the same of the cell C alone; where it is fenced, with the place in the log
/metrics   Prometheus text
/cursors   how far it has got: what is counted there is handled, with its consequences published
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.http.connections import SCRAPED, BoundedHttp, is_gone, places_left
from fallow.shared.runtime.http.door import Door
from fallow.shared.runtime.http.turns import Turns
from fallow.shared.runtime.telemetry import rss_bytes

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

RSS_AGE_MS_MAX = 1_000
JSON_TYPE = "application/json"
ENDS_S = 1.0
"""So long what is still to be answered may take to end, once its connections are closed."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Why a process does nothing for a cell any more, and at which place of the log it saw that. `advice` is the line
    that tells a person what to do first, empty for the usual one.
    """

    reason: str
    topic: str
    partition: int
    offset: int | None = None
    advice: str = ""


@dataclass(slots=True)
class Progress:
    """How far a service has got. It changes these fields between two awaits, so that a reader sees them agree."""

    cursors: dict[str, int] = field(default_factory=dict)  # "topic/partition" -> next offset to be handled
    next_due_ms: int | None = None  # cell time of the next thing that happens without an input
    version: dict[str, int] = field(default_factory=dict)  # cell -> version of the state
    busy: bool = False  # it has work at hand that no cursor shows yet


class Health:
    """Readiness and progress of one service, and the ASGI application that shows them."""

    def __init__(self, service: str, instance: str, registry: CollectorRegistry) -> None:
        self.service = service
        self.instance = instance
        self.progress = Progress()
        self._registry = registry
        self._reasons = {"": "starting"}  # what is missing -> why the service is not ready
        self._cell_of = {"": ""}  # what is missing -> which cell lacks it, "" for all of them
        self.fences: dict[str, Fence] = {}  # cell -> why nothing is done for it any more
        self._notes: dict[str, str] = {}  # what is unusual -> what a person should know of it
        self._rss = (-RSS_AGE_MS_MAX, 0.0)
        self._probes, self._scrapes = Turns(), Turns()  # no probe waits behind the costly text of the metrics

    @property
    def is_ready(self) -> bool:
        """Whether the service takes part in the work."""
        return not self._reasons

    @property
    def waiting_for(self) -> str | None:
        """Why it is not ready."""
        return "; ".join(self._reasons.values()) or None

    def ready(self, what: str = "") -> None:
        """Nothing about `what` (the service itself, where nothing is named) hinders the service any more."""
        self._reasons.pop(what, None)
        self._cell_of.pop(what, None)

    def not_ready(self, reason: str, what: str = "", *, cell: str = "") -> None:
        """The service does not take part, for this reason about `what`; it is ready when all reasons are gone. What is
        about one cell keeps that `cell` alone from being ready, what names none keeps all of them.
        """
        self._reasons[what], self._cell_of[what] = reason, cell

    def fence(self, cell: str, fence: Fence) -> None:
        """Nothing is done for this cell any more, until the process is started anew."""
        self.fences[cell] = fence
        self._reasons = {what: why for what, why in self._reasons.items() if what != cell}
        self.not_ready(f"cell {cell} is fenced: {fence.reason}", f"fence of {cell}", cell=cell)

    def noted(self, what: str, text: str | None = None) -> None:
        """Something about `what` needs a person's eyes, though the service does its work. None: no longer."""
        if text is None:
            self._notes.pop(what, None)
        else:
            self._notes[what] = text

    def handled(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything before `next_offset` is handled, and its consequences are published."""
        self.progress.cursors[f"{topic}/{partition}"] = next_offset

    def let_go(self, partition: int, *topics: str) -> None:
        """These topics' partition (without topics: that of every topic) is another process's to handle."""
        for name in list(self.progress.cursors):
            topic, _, number = name.rpartition("/")
            if number == str(partition) and (not topics or topic in topics):
                del self.progress.cursors[name]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request (ASGI), in its turn: others may ask all the time, over many connections."""
        path, reads = scope["path"], scope["method"] in METHODS
        turns = self._scrapes if path == SCRAPED and reads else self._probes
        made = await turns.take(lambda: self.answer(path) if reads else NOT_ALLOWED, is_gone(scope))
        if made is None:
            while (await receive())["type"] != "http.disconnect":
                pass  # its connection is closed, and in a moment uvicorn knows that
            return
        status, content_type, body = made
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        if not reads:
            headers.append((b"allow", ", ".join(METHODS).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path."""
        if path == "/cursors":
            return 200, JSON_TYPE, as_json(self._cursors())
        if path == "/readyz":
            return (200 if self.is_ready else 503), JSON_TYPE, as_json(self._readiness())
        if path.startswith("/readyz/") and (cell := path.removeprefix("/readyz/")) in self._cells():
            told = self._cell(cell)
            return (200 if told["ready"] else 503), JSON_TYPE, as_json(told)
        if path == "/healthz":
            return 200, JSON_TYPE, as_json({"turns": True})
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return NOT_FOUND

    def _readiness(self) -> dict[str, Any]:
        return {
            "ready": self.is_ready,
            "reason": self.waiting_for,
            "cells": {cell: self._cell(cell) for cell in self._cells()},
            "notes": list(self._notes.values()),
            "service": self.service,
            "instance": self.instance,
        }

    def _cells(self) -> list[str]:
        return sorted(self.progress.version.keys() | self.fences.keys())

    def _cell(self, cell: str) -> dict[str, Any]:
        """What is known of one cell, and where the log says why nothing is done for it."""
        fence = self.fences.get(cell)
        if fence is None:
            reasons = [why for what, why in self._reasons.items() if self._cell_of[what] in (cell, "")]
            return {"ready": not reasons, "reason": "; ".join(reasons) or None}
        place = {"topic": fence.topic, "partition": fence.partition, "offset": fence.offset}
        return {"ready": False, "reason": fence.reason, "fenced": True, **place}

    def _cursors(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "service": self.service,
            "instance": self.instance,
            "cursors": progress.cursors,
            "next_due_ms": progress.next_due_ms,
            "version": progress.version,
            "busy": progress.busy,
            "rss_mb": self._rss_mb(),
        }

    def _rss_mb(self) -> float:
        measured_ms, rss_mb = self._rss
        if monotonic_ms() - measured_ms > RSS_AGE_MS_MAX:
            rss_mb = round(rss_bytes() / 1e6, 1)
            self._rss = (monotonic_ms(), rss_mb)
        return rss_mb


def as_json(value: dict[str, Any]) -> bytes:
    """One JSON object, with its keys in the order given."""
    return json.dumps(value, separators=(",", ":")).encode()


NOT_FOUND = (404, JSON_TYPE, as_json({"error": "not found"}))
METHODS = ("GET", "HEAD")
NOT_ALLOWED = (405, JSON_TYPE, as_json({"error": f"must be asked by {' or '.join(METHODS)}"}))


class HealthServer:
    """Serves the health of a service from the running loop. Signals are not its business."""

    def __init__(self, health: Health, host: str, port: int, http: type[BoundedHttp] = BoundedHttp) -> None:
        self._listener = socket.create_server((host, port))
        config = uvicorn.Config(
            health,
            http=http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=60,
        )
        self._server = QuietServer(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on: the one asked for, or the one the system picked."""
        return int(self._listener.getsockname()[1])

    async def start(self) -> None:
        """Serves from now on."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="health server")

    async def stop(self) -> None:
        """Closes all connections, those kept alive too, and ends."""
        self._server.should_exit = self._server.force_exit = True
        if self._task is not None:
            await self._task
        state = self._server.server_state
        for connection in [*state.connections]:
            connection.transport.abort()  # a client that does not read its answer would hold up the end
        if state.tasks:
            await asyncio.wait([*state.tasks], timeout=ENDS_S)
        self._listener.close()


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own (see process.py). Connections come in by a door."""

    _door: asyncio.Task[None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets connections in from now on."""
        assert sockets, "it is given the socket that it listens on"
        await self.lifespan.startup()
        self.servers = []

        def made() -> asyncio.Protocol:
            protocol: type[Any] = self.config.http_protocol_class
            made: asyncio.Protocol = protocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        door = Door(sockets[0], made, lambda: places_left(self.server_state.connections))
        self._door = asyncio.create_task(door.serve(), name="door of the health server")
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets no client in any more."""
        self._door.cancel()
        await asyncio.gather(self._door, return_exceptions=True)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield
