"""A reader of given Kafka partitions from given offsets, that loses nothing when a poll fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

from fallow.shared.log.kafka.closing import close, start_or_close
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.consumer import SteadyConsumer
from fallow.shared.log.kafka.unread import Failure
from fallow.shared.log.port import LogTruncated, LogUnavailable, Record, TopicPartition, UnreadableRecords
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

START_BOUND_S = 10.0
TRUNCATION_QUERY_BOUND_S = 3.0
GATHER_STEP_MS = 3
PARTITION_FETCH_BYTES_MAX = 4 * 1024 * 1024
"""Four of the largest records at a time: a cold start reads at the speed of the wire, and memory stays bounded."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """How a reader asks: a fetch stays at the broker until so many bytes are there, for `wait_ms` at most.

    With `gather_ms` a poll goes on for that long while records come: for the embedded broker, which hands out one batch
    of a partition at a time, however small.
    """

    wait_ms: int
    bytes_min: int = 1
    gather_ms: int = 0


class KafkaReader:
    """Explicit assignment, no group, no stored offsets: the position is the caller's business.

    The client keeps one fetch in flight for each broker. A partition whose records were still unread when the fetch
    went out is left out of it, and asked for only when that fetch returns, which takes up to its `wait_ms` when the
    other partitions are idle. So one that is in a hurry waits for a short time only; data wakes its fetch at once.
    """

    def __init__(
        self, kafka: str | KafkaAccess, client_id: str, positions: Mapping[TopicPartition, int], fetching: Fetching
    ) -> None:
        self._kafka = access_to(kafka)
        self._client_id = client_id
        self._fetching = fetching
        self._positions = dict(positions)
        self._assigned = {tp: KafkaTopicPartition(*tp) for tp in self._positions}
        self._consumer: SteadyConsumer | None = None

    async def start(self) -> None:
        """Connect, and stand at the given offsets. Raises LogUnavailable within ten seconds."""
        consumer = SteadyConsumer(
            **client_options(self._kafka),
            client_id=f"{self._client_id}-reader",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=self._fetching.wait_ms,
            fetch_min_bytes=self._fetching.bytes_min,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES_MAX,
        )
        await start_or_close(consumer, START_BOUND_S, f"no Kafka at {self._kafka}")
        consumer.assign(list(self._assigned.values()))
        self._consumer = consumer
        self._stand_at_positions()

    async def stop(self) -> None:
        """Close the consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def poll(self, max_records: int = 500, wait_ms: int = 100) -> list[Record]:
        """As the port says. Any other error of the client (a damaged record) is raised as it is, with nothing lost."""
        records = await self._poll(max_records, wait_ms)
        gathered_s = asyncio.get_running_loop().time() + self._fetching.gather_ms / 1000
        while records and len(records) < max_records and asyncio.get_running_loop().time() < gathered_s:
            try:
                more = await self._poll(max_records - len(records), GATHER_STEP_MS)
            except (KafkaError, LogTruncated, LogUnavailable):
                return records  # they are read already, so they come first; the next poll meets the same again
            if not more:
                return records
            records += more
        return records

    async def _poll(self, max_records: int, wait_ms: int) -> list[Record]:
        consumer = self._running()
        failure = consumer.take_lasting()
        if failure is not None:
            raise await self._unreadable(failure) from failure.error
        try:
            batches = await consumer.getmany(timeout_ms=wait_ms, max_records=max_records)
        except OffsetOutOfRangeError as error:
            self._stand_at_positions()
            raise await self._truncated(error) from error
        except Exception:
            # One partition's failure makes aiokafka drop what it had already taken from the others.
            self._stand_at_positions()
            raise
        # Not "last record + 1": the client also steps over control records and compacted gaps.
        for assigned, position in consumer.standing().items():
            self._positions[assigned.topic, assigned.partition] = position
        return list(chain.from_iterable(batches.values()))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Also before start."""
        if tp not in self._positions:
            raise KeyError(f"{tp[0]}/{tp[1]} is not read here")
        self._positions[tp] = offset
        if self._consumer is not None:
            self._consumer.seek(self._assigned[tp], offset)

    def positions(self) -> dict[TopicPartition, int]:
        """A copy."""
        return dict(self._positions)

    def _running(self) -> SteadyConsumer:
        if self._consumer is None:
            raise RuntimeError("this reader is not started")
        return self._consumer

    def _stand_at_positions(self) -> None:
        consumer = self._running()
        for tp, assigned in self._assigned.items():
            consumer.seek(assigned, self._positions[tp])

    async def _truncated(self, error: OffsetOutOfRangeError) -> Exception:
        """Say what the log does hold; LogUnavailable when even that cannot be asked."""
        assigned, asked = next(iter(error.args[0].items()))
        try:
            begin, end = await self._held(assigned)
        except (KafkaError, TimeoutError, OSError) as failure:
            return LogUnavailable(f"{assigned.topic}/{assigned.partition}: {asked} is out of range; {failure!r}")
        return LogTruncated((assigned.topic, assigned.partition), asked=asked, begin=begin, end=end)

    async def _held(self, assigned: KafkaTopicPartition) -> tuple[int, int]:
        """Where the partition begins and ends. Raises KafkaError, TimeoutError, OSError."""
        consumer = self._running()
        async with asyncio.timeout(TRUNCATION_QUERY_BOUND_S):
            begin = (await consumer.beginning_offsets([assigned]))[assigned]
            return begin, (await consumer.end_offsets([assigned]))[assigned]

    async def _unreadable(self, failure: Failure) -> Exception:
        """What some tries have not mended. A right that is missing is no damage, and may be given."""
        is_no_damage = isinstance(failure.error, TopicAuthorizationFailedError)
        if is_no_damage:
            return failure.error
        tp = (failure.tp.topic, failure.tp.partition)
        try:
            _, end = await self._held(failure.tp)
        except (KafkaError, TimeoutError, OSError) as away:
            return LogUnavailable(f"{tp[0]}/{tp[1]}: {failure.offset} cannot be read; {away!r}")
        behind = end if failure.behind is None else min(failure.behind, end)
        return UnreadableRecords(tp, asked=failure.offset, begin=behind, end=end, why=failure.why)
