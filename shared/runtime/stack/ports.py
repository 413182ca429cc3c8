"""Free TCP ports on this machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

LOCAL = "127.0.0.1"
LOWEST = 10_000
"""Below it stand the ports of known services."""
OUTGOING_LOWEST = 32_768
"""Linux gives outgoing connections the ports from here on, unless it was told otherwise."""
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
ROOM_LEAST = 1_000
TRIES_MAX = 1_000


def free_port() -> int:
    """A port on which no process listens now. Another process may take it before its user does; starters notice and say
    so.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """Different free ports: all are held until the last is found, so that no two are the same.

    None is a port that this machine gives outgoing connections, where it leaves enough others: such a connection
    could take it before its server starts, or while its server is down for a moment.
    """
    drawn, probes = _drawn(), list[socket.socket]()
    try:
        while len(probes) < count:
            probe = socket.socket()
            try:
                probe.bind((LOCAL, next(drawn)))
            except OSError:
                probe.close()
            else:
                probes.append(probe)
        return tuple(int(probe.getsockname()[1]) for probe in probes)
    finally:
        for probe in probes:
            probe.close()


def _drawn() -> Iterator[int]:
    """Ports to try, in no order that two processes share; in the end 0, with which the system chooses."""
    end = _outgoing_lowest()
    if end - LOWEST >= ROOM_LEAST:
        chance = random.SystemRandom()
        for _ in range(TRIES_MAX):
            yield chance.randrange(LOWEST, end)
    while True:
        yield 0


def _outgoing_lowest() -> int:
    try:
        return int(OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_LOWEST
