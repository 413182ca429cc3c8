"""Offsets as the broker gave them, whatever the records of a batch say.

In a batch each record names its own distance from the batch's first one. The broker counts the records, and stores what
its sender named unchecked. A client that believes it goes on from a place that does not exist, or passes over what
stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import CorruptRecordException

MAGIC = 2
"""Of the batches of today. In those of older brokers the broker numbers each record itself."""


class TrueOffsets:
    """The batches of one fetch, as aiokafka reads them; each record of theirs has its true offset."""

    def __init__(self, fetched: Any) -> None:
        """Of aiokafka's `MemoryRecords`."""
        self._fetched = fetched
        self.has_next = fetched.has_next
        self._newest: Any = None

    def behind(self) -> int | None:
        """Where the next whole batch behind the newest one begins, or where the bytes of this fetch say that it should;
        None where they say nothing.
        """
        try:
            while self.has_next():
                self._newest = self._fetched.next_batch()
                if self._newest.validate_crc():
                    return int(self._newest.base_offset)
        except Exception:  # noqa: BLE001 - whatever the reading of damaged bytes may come to
            return None
        return None if self._newest is None else int(self._newest.next_offset)

    def next_batch(self) -> Any:
        """As aiokafka's; None behind the last one."""
        self._newest = None
        batch = self._newest = self._fetched.next_batch()
        is_plain = batch is None or batch.magic < MAGIC or batch.is_control_batch
        return batch if is_plain else _Batch(batch)


class _Batch:
    """What aiokafka's fetcher asks of a batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.validate_crc = batch.validate_crc
        self.is_control_batch, self.is_transactional = False, batch.is_transactional
        self.producer_id, self.base_offset, self.next_offset = batch.producer_id, batch.base_offset, batch.next_offset

    def __iter__(self) -> Iterator[Any]:
        """The records; behind the readable ones the error of the first that is not."""
        records, error = list[Any](), None
        try:
            records.extend(self._batch)
        except Exception as failure:  # noqa: BLE001 - raised when its turn comes
            error = failure
        if error is None and len(records) != self.next_offset - self.base_offset:
            yield from self._in_order(records)
        else:
            yield from map(_at, records, range(self.base_offset, self.base_offset + len(records)))
        if error is not None:
            raise error

    def _in_order(self, records: list[Any]) -> Iterator[Any]:
        """Compaction has taken some: those that are left keep the offsets that they name."""
        before = self.base_offset - 1
        for record in records:
            if not before < record.offset < self.next_offset:
                where = f"between {self.base_offset} and {self.next_offset - 1}"
                raise CorruptRecordException(f"a record names offset {record.offset} in a batch {where}")
            before = record.offset
            yield record


@dataclass(frozen=True, slots=True)
class _Moved:
    """A record that named another offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: int


def _at(record: Any, offset: int) -> Any:
    if record.offset == offset:
        return record
    return _Moved(offset, record.key, record.value, record.headers, record.timestamp)
