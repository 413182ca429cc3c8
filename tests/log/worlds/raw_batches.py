"""Batches of records byte by byte, as a client may write them that gives each record an offset of its own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from aiokafka.record.util import calc_crc32c, encode_varint

MAGIC = 2
STAMP_MS = 1_700_000_000_000


def raw_batch(values: Sequence[bytes], deltas: Sequence[int], base: int = 0, span: int | None = None) -> bytearray:
    """One uncompressed batch. `span`: how many offsets it takes by its header, if not one for each value."""
    body = b"".join(_record(value, delta) for value, delta in zip(values, deltas, strict=True))
    last = (len(values) if span is None else span) - 1
    tail = struct.pack(">hiqqqhii", 0, last, STAMP_MS, STAMP_MS, -1, -1, -1, len(values)) + body
    return bytearray(struct.pack(">qiibI", base, 9 + len(tail), -1, MAGIC, calc_crc32c(tail)) + tail)


class Raw:
    """In the place of a batch's builder: the batch is these bytes."""

    def __init__(self, builder: Any, raw: bytearray) -> None:
        self._builder, self._raw = builder, raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def build(self) -> bytearray:
        """What is sent."""
        return self._raw


def _varint(number: int) -> bytes:
    found = bytearray()
    encode_varint(number, found.append)
    return bytes(found)


def _record(value: bytes, delta: int) -> bytes:
    """Without a key and without headers."""
    body = b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body
