"""The one question that tells whether a Kafka broker serves requests: ApiVersions, asked by hand.

A broker accepts connections long before it serves them, and a client library is slow to import and loud while it waits.
"""

from __future__ import annotations

import socket
import struct

CLIENT_ID = b"fallow-stack"
# ApiVersions (key 18) version 0, correlation id 1: https://kafka.apache.org/protocol
BODY = struct.pack(">hhih", 18, 0, 1, len(CLIENT_ID)) + CLIENT_ID
REQUEST = struct.pack(">i", len(BODY)) + BODY


def answers(host: str, port: int, *, wait_s: float = 0.5) -> bool:
    """Whether a broker at this address answers now."""
    try:
        with socket.create_connection((host, port), timeout=wait_s) as connection:
            connection.sendall(REQUEST)
            return connection.recv(4) != b""
    except OSError:
        return False
