"""A reader of given partitions of a MemoryBroker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fallow.shared.log.port import LogTruncated, LogUnavailable, Record, TopicPartition, UnreadableRecords

if TYPE_CHECKING:
    from fallow.shared.log.memory.log import MemoryBroker


class MemoryReader:
    """Takes partitions in turn, beginning after the one that it began with last, so that none starves."""

    def __init__(self, broker: MemoryBroker, positions: Mapping[TopicPartition, int]) -> None:
        self._broker = broker
        self._positions = dict(positions)
        self._turn = 0

    async def start(self) -> None:
        """Raises LogUnavailable while the broker is away."""
        if self._broker.is_away:
            raise LogUnavailable("the broker is away")

    async def stop(self) -> None:
        """Nothing is held."""

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        """As the port says."""
        arrival = self._broker.arrival()
        records = self._take(max_records)
        if not records and wait_ms > 0:
            # No arrival in time is an ordinary empty poll.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await arrival.wait()
            records = self._take(max_records)
        return records

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """As the port says."""
        if tp not in self._positions:
            raise KeyError(f"{tp[0]}/{tp[1]} is not read here")
        self._positions[tp] = offset

    def positions(self) -> dict[TopicPartition, int]:
        """A copy."""
        return dict(self._positions)

    def _take(self, max_records: int) -> list[Record]:
        if self._broker.is_away:
            return []
        order = list(self._positions)
        self._turn = (self._turn + 1) % max(1, len(order))
        taken: list[Record] = []
        for tp in order[self._turn :] + order[: self._turn]:
            try:
                taken.extend(self._read(tp, max_records - len(taken)))
            except LogTruncated:
                if not taken:
                    raise
                # What was taken from the others comes first; the next poll raises.
                break
        return taken

    def _read(self, tp: TopicPartition, room: int) -> list[Record]:
        partition = self._broker.partition(tp)
        asked = self._positions[tp]
        if not partition.begin <= asked <= partition.end:
            raise LogTruncated(tp, asked=asked, begin=partition.begin, end=partition.end)
        bad = min((at for at in partition.damaged if at >= asked), default=partition.end) if partition.damaged else None
        if bad is not None:
            room = min(room, bad - asked)
            if bad == asked < partition.end:
                behind = next(at for at in range(asked, partition.end + 1) if at not in partition.damaged)
                raise UnreadableRecords(tp, asked=asked, begin=behind, end=partition.end, why="the batch is damaged")
        found = partition.records[asked - partition.begin : min(asked + room, partition.end) - partition.begin]
        self._positions[tp] += len(found)
        return [record for record in found if record.offset not in partition.markers] if partition.markers else found
