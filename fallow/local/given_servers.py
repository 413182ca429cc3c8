"""Servers whose addresses `fallow up` is given: whether they answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

REDIS_PORT = 6379
ANSWER_S = 5.0


def none_answers(address: str) -> bool:
    """Whether no server takes a connection there. `address` is HOST:PORT, several of these with commas, or a URL."""
    if address.startswith("unix:"):
        return False
    return not any(_takes_connections(host, port) for host, port in _places(address))


def _places(address: str) -> Iterator[tuple[str, int]]:
    for part in address.split(","):
        url = urlsplit(part.strip() if "//" in part else f"//{part.strip()}")
        yield url.hostname or "", url.port or REDIS_PORT


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=ANSWER_S).close()
    except OSError:
        return False
    return True
