"""Two questions that tell whether a Kafka broker serves requests and consumer groups: ApiVersions and FindCoordinator,
asked by hand.

A broker accepts connections long before it serves them, and a client library is slow to import and loud while it waits.
"""

from __future__ import annotations

import socket
import struct

CLIENT_ID = b"fallow-stack"
GROUP = b"fallow-stack"
ERROR_AT = 8
"""Behind the answer's size and correlation id."""


def _request(key: int, body: bytes = b"") -> bytes:
    """A request of version 0, with correlation id 1: https://kafka.apache.org/protocol."""
    header = struct.pack(">hhih", key, 0, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


API_VERSIONS = _request(18)
FIND_COORDINATOR = _request(10, struct.pack(">h", len(GROUP)) + GROUP)


def answers(host: str, port: int, *, wait_s: float = 0.5) -> bool:
    """Whether a broker at this address answers now."""
    return _ask(host, port, API_VERSIONS, wait_s) != b""


def coordinates(host: str, port: int, *, wait_s: float = 0.5) -> bool:
    """Whether it tells where a group is coordinated. A new broker does not before the topic of offsets is made, which
    the first question begins: consumers that come earlier write an error.
    """
    answer = _ask(host, port, FIND_COORDINATOR, wait_s)
    return len(answer) >= ERROR_AT + 2 and struct.unpack_from(">h", answer, ERROR_AT) == (0,)


def _ask(host: str, port: int, request: bytes, wait_s: float) -> bytes:
    """The first bytes of the answer, from its size on; none if none comes."""
    try:
        with socket.create_connection((host, port), timeout=wait_s) as connection:
            connection.sendall(request)
            return connection.recv(64)
    except OSError:
        return b""
