"""As of which time a record is judged: one that comes again, as of its first try."""

from __future__ import annotations

from collections.abc import Iterable

from shared.log.port import Record, TopicPartition


class AsOf:
    """The wall times of tries. An answer of a try that failed may have got into the log, so the same record gets the
    same answer at the next one, and a tenant's tokens are counted as of the same time. Others, that come with it or in
    its place, are judged as of their own time: a batch that failed may go to another process, and come back in parts
    or never.
    """

    def __init__(self) -> None:
        self._now_ms = 0
        self._tried: dict[TopicPartition, list[tuple[int, int]]] = {}
        """For each partition the offsets before which all was tried, ascending, each with the time of its first try."""

    def begin(self, now_ms: int) -> None:
        """A try begins."""
        self._now_ms = now_ms

    def of(self, record: Record) -> int:
        """As of when this record is judged."""
        for end, at_ms in self._tried.get((record.topic, record.partition), ()):
            if record.offset < end:
                return at_ms
        return self._now_ms

    def failed(self, records: Iterable[Record]) -> None:
        """The try of these has failed."""
        for tp, end in _ends(records).items():
            tried = self._tried.setdefault(tp, [])
            if not tried or tried[-1][0] < end:
                tried.append((end, self._now_ms))

    def done(self, records: Iterable[Record]) -> None:
        """These are answered, and what stood before them, here or by another process."""
        for tp, done in _ends(records).items():
            left = [each for each in self._tried.pop(tp, ()) if each[0] > done]
            if left:
                self._tried[tp] = left


def _ends(records: Iterable[Record]) -> dict[TopicPartition, int]:
    """The offset behind the last of them, of each partition. The records of a partition come in their order."""
    return {(record.topic, record.partition): record.offset + 1 for record in records}
