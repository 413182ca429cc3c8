"""Free TCP ports on this machine."""

from __future__ import annotations

import socket

LOCAL = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now. Another process may take it before its user does; starters notice and say
    so.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """Different free ports: all are held until the last is found, so that no two are the same."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOCAL, 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)
    finally:
        for probe in probes:
            probe.close()
