"""Reads on behind a known place, and begins with the record right before it: so the record that is compared with the
one that was read, and those behind it, come in one stream, and the topic cannot be another one between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fallow.shared.log.inputs.losses import OtherRecord
from fallow.shared.log.machine.losses import Place
from fallow.shared.log.port import Log, LogTruncated, Reader, Record, TopicPartition, UnreadableRecords
from fallow.shared.log.reading import input_checksum


class ContinuedReader:
    """A reader of partitions of which some were read before. It hands out what stands at its positions or behind.

    `poll` raises OtherRecord, once, where another record stands right before a position than the one that was read.
    """

    def __init__(
        self,
        log: Log,
        positions: Mapping[TopicPartition, int],
        places: Mapping[TopicPartition, Place],
        patient_ms: int = 0,
    ) -> None:
        """`places`: what was read of the partitions. One that does not end at the position, or whose last record is not
        known, is read from the position itself.
        """
        self._known = {
            tp: place
            for tp, place in places.items()
            if place.checksum is not None and place.next_offset and positions.get(tp) == place.next_offset
        }
        self._lost: list[TopicPartition] = []
        first = {tp: offset - 1 if tp in self._known else offset for tp, offset in positions.items()}
        self._reader: Reader = log.reader(first, patient_ms=patient_ms)

    async def start(self) -> None:
        """As the port says."""
        await self._reader.start()

    async def stop(self) -> None:
        """As the port says."""
        await self._reader.stop()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """As the port says. What stands before the offset is not compared."""
        self._known.pop(tp, None)
        self._lost = [lost for lost in self._lost if lost != tp]
        self._reader.seek(tp, offset)

    def positions(self) -> dict[TopicPartition, int]:
        """As the port says."""
        known = {tp: place.next_offset for tp, place in self._known.items()}
        return {**self._reader.positions(), **known}

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        """As the port says."""
        self._tell_lost()
        try:
            records = await self._reader.poll(max_records, wait_ms)
        except LogTruncated as error:
            place = self._known.get(error.tp)
            if place is None:
                raise
            self.seek(error.tp, place.next_offset)
            if isinstance(error, UnreadableRecords):
                return []  # what was read cannot be compared; what comes next may be whole
            if error.begin == place.next_offset:
                return []  # what was read is deleted by its age
            raise LogTruncated(error.tp, asked=place.next_offset, begin=error.begin, end=error.end) from error
        if not self._known or not records:
            return records
        found = self._compared(records)
        if not found:
            self._tell_lost()
        return found

    def _compared(self, records: Sequence[Record]) -> list[Record]:
        """Those that are new, of partitions that continue what was read."""
        known, new = self._known, list[Record]()
        for record in records:
            tp = (record.topic, record.partition)
            if tp in known and tp not in self._lost:
                place = known[tp]
                if record.offset >= place.next_offset:
                    del known[tp]  # the record before it was deleted by its age meanwhile
                elif input_checksum(record) == place.checksum:
                    del known[tp]
                    continue
                else:
                    self._lost.append(tp)
            if tp not in self._lost:
                new.append(record)
        return new

    def _tell_lost(self) -> None:
        if self._lost:
            tp = self._lost.pop()
            raise OtherRecord(tp, self._known.pop(tp).next_offset)
