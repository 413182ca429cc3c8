"""Which Kafka and which Redis to take: the most real one that this machine has, and why not the others.

Kafka: FALLOW_KAFKA, Docker, Apache Kafka's jars, the embedded broker. Redis: FALLOW_REDIS, Docker, a server on the
PATH, the wheel. The variables hold an address, or the name of a source ("jars", "embedded", "docker", "path",
"wheel") to take that one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fallow.shared.runtime.stack import docker, embedded_broker, kafka_jars, valkey
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.server import Given, Server, Source


@dataclass(frozen=True, slots=True)
class Skipped:
    """A source that was not taken, and why."""

    source: Source
    reason: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The server that was taken, not started yet, and what was passed over."""

    server: Server
    skipped: tuple[Skipped, ...]

    def explanation(self) -> str:
        """One line: what was taken and why not something before it."""
        passed = "; ".join(f"{skip.source}: {skip.reason}" for skip in self.skipped)
        return self.server.description + (f" ({passed})" if passed else "")


# Makes a server that is not started yet, or says why it cannot.
Option = Callable[[], Server | str]


def choose_kafka(data_dir: Path, *, durable: bool = False, embedded: bool = True, quick_start: bool = True) -> Choice:
    """The Kafka to use; StackError when there is none. `embedded=False` asks for a real one."""
    options: dict[Source, Option] = {
        Source.DOCKER: lambda: docker.obstacle(docker.KAFKA_IMAGE) or docker.kafka_container(),
        Source.JARS: lambda: (
            kafka_jars.obstacle() or kafka_jars.KafkaFromJars(data_dir, durable=durable, quick_start=quick_start)
        ),
    }
    if embedded:
        options[Source.EMBEDDED] = lambda: embedded_broker.obstacle() or embedded_broker.EmbeddedBroker(data_dir)
    return first_of("FALLOW_KAFKA", "Kafka", options)


def choose_redis(data_dir: Path) -> Choice:
    """The Redis to use; StackError when there is none."""
    options: dict[Source, Option] = {
        Source.DOCKER: lambda: docker.obstacle(docker.VALKEY_IMAGE) or docker.valkey_container(),
        Source.PATH: lambda: served(valkey.program_on_path(), data_dir),
        Source.WHEEL: lambda: served(valkey.program_in_wheel(), data_dir),
    }
    return first_of("FALLOW_REDIS", "Redis", options)


def served(program: valkey.Program | str, data_dir: Path) -> Server | str:
    """A server of that program, or the reason why there is none."""
    return program if isinstance(program, str) else valkey.Valkey(program, data_dir)


def first_of(variable: str, what: str, options: dict[Source, Option]) -> Choice:
    """Goes through the options in their order; `variable` may hold an address or name one of them."""
    given = os.environ.get(variable, "").strip()
    if given and given not in set(options):
        return Choice(Given(given, f"{what} at {variable}"), ())
    skipped: list[Skipped] = []
    for source, option in options.items():
        server = f"{variable} asks for {given}" if given and given != source else option()
        if not isinstance(server, str):
            return Choice(server, tuple(skipped))
        skipped.append(Skipped(source, server))
    raise StackError(f"there is no {what} to use: {reasons(skipped)}")


def reasons(skipped: Sequence[Skipped]) -> str:
    """All reasons in one line."""
    return "; ".join(f"{skip.source}: {skip.reason}" for skip in skipped)
