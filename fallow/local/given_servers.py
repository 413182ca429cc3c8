"""Servers whose addresses `fallow up` is given: whether they answer, and whether they let everybody in."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from fallow.shared.runtime.kafka_access import Protocol
from fallow.shared.runtime.settings import KafkaSecurity, SettingsError

REDIS_PORT = 6379
ANSWER_S = 5.0


def must_speak_in_the_clear() -> None:
    """Raise SettingsError where the settings are those of a Kafka with security: each service comes in as a user of its
    own there, and one that is started by the command has no other settings than this process.
    """
    found = KafkaSecurity.load()
    if found.kafka_security is not Protocol.PLAINTEXT:
        names = [f"FALLOW_{name.upper()}" for name in KafkaSecurity.model_fields]
        told = ", ".join(name for name in names if name in os.environ)
        rule = "must be PLAINTEXT: services that this command starts speak to a Kafka without security only"
        way = f"{told and f'unset {told}, or '}start each service by itself (SECURITY.md)"
        raise SettingsError(f"FALLOW_KAFKA_SECURITY = {found.kafka_security.value}: {rule}; {way}")


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
