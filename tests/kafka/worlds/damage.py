"""What a disk may do to a broker's log: bytes of a batch are others than were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.shared.log.port import TopicPartition
from fallow.shared.runtime.stack.choose import Choice
from fallow.shared.runtime.stack.kafka_jars import KafkaFromJars

LENGTH_AT = 8
"""In a batch, behind its first offset: how many bytes follow."""


class Segment:
    """The only segment of a partition, in the folder of a broker that runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole: bytes | None = None

    def damage(self, value: bytes) -> None:
        """Change one byte of the record with this value: the checksum of its batch is wrong then."""
        found = self._kept()
        self._write(found.index(value), bytes([value[0] ^ 0xFF]))

    def lengthen(self, value: bytes) -> None:
        """Let the header of the batch with this record say that it is larger than all that there is."""
        at, wanted, found = 0, self._kept().index(value), self._kept()
        while True:
            length = int.from_bytes(found[at + LENGTH_AT : at + LENGTH_AT + 4], "big")
            if wanted < at + LENGTH_AT + 4 + length:
                break
            at += LENGTH_AT + 4 + length
        self._write(at + LENGTH_AT, (1 << 20).to_bytes(4, "big"))

    def repair(self) -> None:
        """As it was, with what has come since."""
        whole = self._kept()
        with self._path.open("r+b") as file:
            file.write(whole)
        self._whole = None

    def _kept(self) -> bytes:
        if self._whole is None:
            self._whole = self._path.read_bytes().rstrip(b"\0")
        return self._whole

    def _write(self, at: int, some: bytes) -> None:
        with self._path.open("r+b") as file:
            file.seek(at)
            file.write(some)


def segment_of(choice: Choice, tp: TopicPartition) -> Segment:
    """Skips the test where the broker's folder is not on this machine."""
    server = choice.server
    if not isinstance(server, KafkaFromJars):
        pytest.skip("needs a Kafka whose folder is here")
    (path,) = (server.data_dir / "log" / f"{tp[0]}-{tp[1]}").glob("*.log")
    return Segment(path)
