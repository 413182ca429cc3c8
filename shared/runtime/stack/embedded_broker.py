"""The embedded broker: librdkafka's, in memory, in a process of its own.

It speaks Kafka's protocol and needs nothing but a wheel. It forgets everything at its end, creates topics by itself
with four partitions, keeps 5 MB of a partition, and fences no producer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fallow.shared.runtime.extras import why_missing
from fallow.shared.runtime.stack.child import Child, environment_with
from fallow.shared.runtime.stack.server import Source

START_WAIT_S = 20.0
TOP = Path(__file__).parents[4]


def obstacle() -> str | None:
    """Why it cannot be started here, or None."""
    return why_missing("confluent_kafka")


class EmbeddedBroker:
    """One embedded broker, with its output in `data_dir`. A second start is a new broker: empty, and at a new
    address.
    """

    source = Source.EMBEDDED
    description = "embedded broker (librdkafka's, in memory)"

    def __init__(self, data_dir: Path) -> None:
        self._output = data_dir / "embedded-broker.log"
        module = ["-P", "-m", "fallow.shared.runtime.stack.embedded_broker_process"]
        # The package may not be installed: -m looks in the folder that PYTHONPATH names.
        environment = environment_with(TOP)
        self._child = Child("the embedded broker", [sys.executable, *module], self._output, environment)

    @property
    def address(self) -> str:
        """The bootstrap address that it printed last."""
        lines = self._output.read_text(encoding="utf-8").splitlines() if self._output.exists() else []
        return next((line for line in reversed(lines) if is_address(line)), "")

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._child.is_running

    @property
    def exit_code(self) -> int | None:
        """That of its process."""
        return self._child.exit_code

    def start(self) -> None:
        """Starts it and waits for its address."""
        self._output.unlink(missing_ok=True)
        self._child.start()
        self._child.wait_until(lambda: self.address != "", wait_s=START_WAIT_S)

    def stop(self) -> None:
        """Ends it, and with it all records."""
        self._child.stop(wait_s=2.0)

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self._child.kill()

    def tail(self) -> str:
        """The last lines of its output."""
        return self._child.tail()


def make_topics(address: str, names: Sequence[str]) -> None:
    """Let topics appear: the broker makes each, with four partitions, when a producer first asks about it. Readers and
    members of groups only wait for it.
    """
    # Imported here, since only this needs it.
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": address, "log_level": 2})
    for name in names:
        producer.list_topics(name, timeout=START_WAIT_S)


def is_address(line: str) -> bool:
    """Whether a whole line of output is host:port."""
    host, _, port = line.rpartition(":")
    return bool(host) and port.isdigit() and " " not in host
