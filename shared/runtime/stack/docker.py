"""Kafka and Redis in containers, where a Docker engine answers (by testcontainers).

testcontainers' own Kafka class expects another vendor's image, so the official one runs as a plain container, with
one port on both sides: the address that the broker advertises is the one by which this machine reaches it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fallow.shared.runtime.clocks import monotonic_ms
from fallow.shared.runtime.stack import kafka_wire, valkey
from fallow.shared.runtime.stack.child import StackError, told_by
from fallow.shared.runtime.stack.ports import LOCAL, free_port
from fallow.shared.runtime.stack.restarts import SIGNAL_BASE
from fallow.shared.runtime.stack.server import Source

KAFKA_IMAGE = "apache/kafka:4.3.1"
VALKEY_IMAGE = "valkey/valkey:9"
START_WAIT_MS = 120_000
LOOK_AGAIN_S = 0.1


def obstacle(image: str) -> str | None:
    """Why a container of this image cannot be used here, or None when an engine answers and has the image."""
    if importlib.util.find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    import docker  # noqa: PLC0415 - heavy, and only callers that want containers need it

    try:
        with contextlib.closing(docker.from_env(timeout=5)) as engine:
            return missing_image(engine, image)
    except (docker.errors.DockerException, OSError):
        return "no Docker engine answers"


def missing_image(engine: Any, image: str) -> str | None:
    """Why the engine cannot run this image: it has not got it and cannot fetch it. None when it can."""
    import docker  # noqa: PLC0415 - see obstacle()

    try:
        if not engine.images.list(name=image):
            engine.images.pull(image)
    except docker.errors.APIError as error:
        return f"Docker has no {image} and cannot fetch it ({error.explanation or error})"
    return None


class Container:
    """One container with one port, the same inside and outside, that can be stopped and started with its data."""

    source = Source.DOCKER

    def __init__(
        self,
        image: str,
        port: int,
        inner_port: int,
        environment: Mapping[str, str],
        is_up: Callable[[str, int], bool],
        address: str,
        command: str = "",
    ) -> None:
        self.description = f"{image} in Docker"
        self.address = address
        self._image, self._port, self._inner_port = image, port, inner_port
        self._environment, self._is_up, self._command = dict(environment), is_up, command
        self._container: Any = None

    @property
    def is_running(self) -> bool:
        """Whether it was created and has not ended, as the engine tells."""
        return self._container is not None and not self._has_ended()

    @property
    def exit_code(self) -> int | None:
        """As the engine tells, which adds 128 to the number of a signal."""
        if self._container is None or not self._has_ended():
            return None
        code = int(self._container.get_wrapped_container().attrs["State"]["ExitCode"])
        return code if code <= SIGNAL_BASE else SIGNAL_BASE - code

    def start(self) -> None:
        """Creates the container, or starts it again, and waits until it answers."""
        if self._container is None:
            self._container = self._create()
        else:
            self._container.get_wrapped_container().start()
        deadline_ms = monotonic_ms() + START_WAIT_MS
        while not self._is_up(LOCAL, self._port):
            if monotonic_ms() > deadline_ms or self._has_ended():
                raise StackError(f"{self.description} did not answer:\n{self.tail()}")
            threading.Event().wait(LOOK_AGAIN_S)

    def stop(self) -> None:
        """Ends the container in order; `remove` deletes it."""
        self._container.get_wrapped_container().stop(timeout=20)

    def kill(self) -> None:
        """Ends the container by SIGKILL."""
        self._container.get_wrapped_container().kill()

    def remove(self) -> None:
        """Deletes the container and its data."""
        self._container.stop(force=True, delete_volume=True)

    def _create(self) -> Any:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - see obstacle()

        container = DockerContainer(self._image).with_bind_ports(self._inner_port, self._port)
        for name, value in self._environment.items():
            container.with_env(name, value)
        if self._command:
            container.with_command(self._command)
        with quiet("testcontainers"):
            return container.start()

    def _has_ended(self) -> bool:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return bool(wrapped.status == "exited")

    def tail(self) -> str:
        """The last lines of its output."""
        said = bytes(self._container.get_wrapped_container().logs(tail=500)).decode("utf-8", "replace")
        return "\n".join(told_by(said.splitlines()))


def kafka_container() -> Container:
    """Apache Kafka, one KRaft node, without flushing each record."""
    port = free_port()
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://localhost:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{LOCAL}:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000",
        "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
        "KAFKA_MESSAGE_MAX_BYTES": "2097152",
        "KAFKA_HEAP_OPTS": "-Xms128M -Xmx512M",
    }
    return Container(KAFKA_IMAGE, port, port, environment, kafka_wire.answers, f"{LOCAL}:{port}")


def valkey_container() -> Container:
    """Valkey that keeps its log of writes in the container."""
    port = free_port()
    command = "valkey-server --appendonly yes --save ''"
    return Container(VALKEY_IMAGE, port, 6379, {}, valkey.answers, f"redis://{LOCAL}:{port}/0", command)


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Keeps a library's notes about its daily work out of the output."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
