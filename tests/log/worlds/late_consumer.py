"""A consumer of looks whose broker answers late or not at all, for tests on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import ConsumerStoppedError, OffsetOutOfRangeError

from fallow.shared.log.port import Record

Places = Collection[KafkaTopicPartition]


class LateBroker:
    """It holds one partition's records from `begin` on. A consumer is open after so many answers."""

    def __init__(self, values: list[bytes], *, late_s: float = 0.0, begin: int = 0, answers_to_open: int = 4) -> None:
        self.values, self.late_s, self.begin, self.answers_to_open = values, late_s, begin, answers_to_open
        self.consumers = list[LateConsumer]()

    def consumer(self, **_: Any) -> Any:
        self.consumers.append(LateConsumer(self))
        return self.consumers[-1]

    def cut_off(self) -> None:
        """No connection that is there now is ever answered again."""
        for each in self.consumers:
            each.is_cut_off = True


class LateConsumer:
    """What a look needs of a SteadyConsumer. `reads` are the partitions that it fetches now."""

    def __init__(self, broker: LateBroker) -> None:
        self.broker, self.is_closed, self.is_cut_off = broker, asyncio.Event(), False
        self.offsets: dict[KafkaTopicPartition, int] = {}
        self.held: set[KafkaTopicPartition] = set()
        self.known: set[KafkaTopicPartition] = set()
        self._fetch: asyncio.Task[None] | None = None

    @property
    def reads(self) -> set[KafkaTopicPartition]:
        return set(self.offsets) - self.held

    async def _answer(self) -> None:
        if self.is_closed.is_set():
            raise ConsumerStoppedError
        waits = [asyncio.create_task(each) for each in (self._late(), self.is_closed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self.is_closed.is_set():
            raise ConsumerStoppedError

    async def _late(self) -> None:
        await asyncio.sleep(self.broker.late_s)
        if self.is_cut_off:
            await asyncio.Event().wait()

    async def start(self) -> None:
        for _ in range(self.broker.answers_to_open - 1):
            await self._answer()

    async def reach(self, _places: Iterable[KafkaTopicPartition]) -> None:
        await self._answer()

    async def stop(self) -> None:
        self.is_closed.set()
        await asyncio.sleep(0.1)

    def assign(self, places: Places) -> None:
        self.offsets, self.held, self.known = dict.fromkeys(places, -1), set(), set()

    def assignment(self) -> set[KafkaTopicPartition]:
        return set(self.offsets)

    def seek(self, tp: KafkaTopicPartition, offset: int) -> None:
        self.offsets[tp] = offset
        self._fetch = None

    def pause(self, *places: KafkaTopicPartition) -> None:
        self.held |= set(places)

    def paused(self) -> set[KafkaTopicPartition]:
        return self.held

    def standing(self) -> dict[KafkaTopicPartition, int]:
        return self.offsets

    def take_lasting(self) -> None:
        return None

    async def beginning_offsets(self, places: Places) -> dict[KafkaTopicPartition, int]:
        """One that is closed asks on, over a new connection, as aiokafka's does."""
        await self._late()
        return dict.fromkeys(places, self.broker.begin)

    async def end_offsets(self, places: Places) -> dict[KafkaTopicPartition, int]:
        await self._late()
        return dict.fromkeys(places, self._end)

    @property
    def _end(self) -> int:
        return self.broker.begin + len(self.broker.values)

    def highwater(self, tp: KafkaTopicPartition) -> int | None:
        return self._end if tp in self.known else None

    def last_stable_offset(self, tp: KafkaTopicPartition) -> int | None:
        return self.highwater(tp)

    async def getmany(
        self, tp: KafkaTopicPartition, *, timeout_ms: int, max_records: int
    ) -> dict[KafkaTopicPartition, list[Record]]:
        """One fetch goes on behind the calls that wait for it."""
        if self._fetch is None:
            self._fetch = asyncio.create_task(self._answer())
        await asyncio.wait({self._fetch}, timeout=timeout_ms / 1000)
        if not self._fetch.done():
            return {}
        self._fetch.result()
        self.known.add(tp)
        offset = self.offsets[tp]
        if not self.broker.begin <= offset <= self._end:
            raise OffsetOutOfRangeError({tp: offset})
        found = self.broker.values[offset - self.broker.begin :][:max_records]
        self.offsets[tp] += len(found)
        return {tp: [Record(tp.topic, tp.partition, offset + n, None, each, (), 0) for n, each in enumerate(found)]}
