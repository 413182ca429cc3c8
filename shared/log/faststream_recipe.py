"""The only way in which this project subscribes through FastStream: batches, committed after their outputs.

FastStream's defaults lose data here: the default policy commits before the handler has succeeded, one odd header drops
a whole batch, `ack` commits more than was handled, a failed commit is swallowed, and a sender may choose where a return
value goes. `tests/kafka/test_faststream_hazards.py` shows each of them on a real Kafka; this recipe avoids them all.
"""

# No `from __future__ import annotations`: FastStream reads the annotations of a nested handler when the program runs.

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka import TopicPartition as KafkaTopicPartition
from faststream import AckPolicy
from faststream.exceptions import StopApplication
from faststream.kafka import KafkaBroker

from shared.log.group_timers import QUICK, GroupTimers
from shared.log.kafka_reader import PARTITION_FETCH_BYTES_MAX
from shared.log.kafka_sharing import IDLE_WAIT_MS, CommitBeforeLeaving, SharingConsumer, tell_loss
from shared.log.machine.consumer import next_offsets
from shared.log.machine.losses import Loss
from shared.log.port import LogUnavailable, Record, TopicPartition

GRACEFUL_STOP_S = 10.0
MAX_POLL_INTERVAL_MS = 300_000
"""Far above the time after which a failing batch is given up, so that retrying never costs the membership."""

BATCH_WAIT_MS = 1
"""FastStream sleeps this long after each empty poll; our consumer sees to it that such a poll lasts longer."""

EMBEDDED_WAIT_MS = 20
"""A fetch that waits at the embedded broker does not wake when something comes."""

BatchHandler = Callable[[list[Record]], Awaitable[None]]
"""Takes a batch, in order within each partition; returns when all outputs of all its records are acknowledged."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a failing batch is tried again: in place, later and later (with jitter), and not for ever."""

    wait_ms_min: int = 100
    wait_ms_max: int = 5_000
    give_up_after_ms: int = 60_000

    def __post_init__(self) -> None:
        """Refuse what would retry hotly, or outlive the membership of the group."""
        if not 10 <= self.wait_ms_min <= self.wait_ms_max <= self.give_up_after_ms <= MAX_POLL_INTERVAL_MS // 2:  # noqa: PLR2004
            raise ValueError(f"{self}: must be 10 <= wait_ms_min <= wait_ms_max <= give_up_after_ms <= 150000")


class DeliveryGaveUp(Exception):
    """A batch failed for as long as its retry policy allows. Nothing is lost: its offsets are not committed."""


class Delivery:
    """What became of the batches of one subscription so far; the owner reads the counts for its metrics."""

    def __init__(self, leaving: CommitBeforeLeaving | None = None) -> None:
        self._leaving = leaving or CommitBeforeLeaving()
        self.batches = 0
        self.records = 0
        self.retries = 0
        self.batches_taken_away = 0
        """Handled here, and again by the partitions' next owner."""
        self.batches_left = 0
        """Failed here and left to the next owner: the partitions were taken away, or this process stops."""
        self._reason: DeliveryGaveUp | None = None
        self._stopped = asyncio.Event()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are this process's to handle, as of the last rebalance."""
        return self._leaving.assigned

    async def given_up(self) -> DeliveryGaveUp:
        """Wait until a batch is given up (for ever, if all goes well). The process should then end with an error."""
        await self._stopped.wait()
        assert self._reason is not None
        return self._reason

    def give_up(self, reason: DeliveryGaveUp) -> None:
        """Note the end of this subscription."""
        self._reason = reason
        self._stopped.set()


class SteadyBroker(KafkaBroker):
    """FastStream's broker, reading by consumers that no record can stop."""

    is_paced = True
    on_loss: Callable[[Loss], None] = staticmethod(tell_loss)

    async def _connect(self) -> Callable[..., AIOKafkaConsumer]:
        await super()._connect()
        config = self.config.broker_config
        assert isinstance(config.builder, partial), "FastStream builds its consumers in another way now"
        config.builder = partial(
            SharingConsumer, is_paced=self.is_paced, on_loss=self.on_loss, **config.builder.keywords
        )
        return config.builder


def make_broker(
    bootstrap: str, client_id: str, *, embedded: bool = False, on_loss: Callable[[Loss], None] = tell_loss
) -> KafkaBroker:
    """A FastStream broker that creates no topics, writes idempotently and logs only what goes wrong. `on_loss` is told
    of partitions that do not hold what their group has committed.
    """
    broker = SteadyBroker(
        bootstrap.split(","),  # FastStream would take several addresses for one
        client_id=client_id,
        acks="all",
        enable_idempotence=True,
        compression_type="gzip" if embedded else None,
        allow_auto_create_topics=False,
        ack_policy=AckPolicy.MANUAL,
        apply_types=False,
        graceful_timeout=GRACEFUL_STOP_S,
        logger=logging.getLogger("faststream"),
        log_level=logging.DEBUG,
    )
    broker.is_paced, broker.on_loss = not embedded, on_loss
    return broker


def subscribe_batches(
    broker: KafkaBroker,
    topics: Sequence[str],
    group: str,
    handler: BatchHandler,
    *,
    retry: RetryPolicy | None = None,
    max_records: int = 500,
    timers: GroupTimers = QUICK,
) -> Delivery:
    """Hand every record of these topics to `handler`, in batches, at least once. Call before the broker is started.

    Within a second after `handler` returned, the offsets of exactly that batch are committed. When it raises, the same
    batch is tried again; when that goes on for too long, the subscription stops and `Delivery.given_up` says so.
    LogUnavailable is waited out for as long as it takes: nobody else could do better. `timers` are EMBEDDED on the
    embedded broker.
    """
    leaving = CommitBeforeLeaving()
    delivery = Delivery(leaving)
    subscriber = broker.subscriber(
        *topics,
        group_id=group,
        batch=True,
        max_records=max_records,
        batch_timeout_ms=BATCH_WAIT_MS,
        fetch_max_wait_ms=IDLE_WAIT_MS if timers is QUICK else EMBEDDED_WAIT_MS,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES_MAX,
        auto_offset_reset="none",
        ack_policy=AckPolicy.MANUAL,
        no_reply=True,
        parser=parse_safely,
        decoder=leave_raw,
        session_timeout_ms=timers.session_ms,
        heartbeat_interval_ms=timers.heartbeat_ms,
        max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
        rebalance_timeout_ms=5_000,
        listener=leaving,
    )

    work = _Delivering(handler, retry or RetryPolicy(), delivery, leaving, is_running=lambda: subscriber.running)

    @subscriber
    async def on_batch(batch: _Batch) -> None:
        await work.deliver(batch)

    return delivery


async def parse_safely(records: Sequence[Record], original: Callable[[Any], Awaitable[Any]]) -> Any:
    """Let FastStream see no header at all: it would fail on null or non-UTF-8 ones, and obey `reply_to`. It would also
    take every record apart, which nobody needs: it sees none but the place of the first.

    The body is our batch, headers included. Nothing is injected into the handler (`apply_types`): for that FastStream
    would hand each batch to a thread and back.
    """
    message = await original((_place_of(records[0]),))
    message.body = _Batch(message.consumer, list(records))
    return message


def _place_of(record: Record) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(
        record.topic, record.partition, record.offset, record.timestamp_ms, 0, None, None, None, -1, -1, ()
    )


async def leave_raw(message: Any) -> "_Batch":
    """No decoding by the framework: bytes are decoded one record at a time, by the consumer recipe."""
    batch: _Batch = message.body
    return batch


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one poll gave, and the consumer that took it."""

    consumer: SharingConsumer
    records: list[Record]


@dataclass(frozen=True, slots=True)
class _Delivering:
    """One subscription at work."""

    handler: BatchHandler
    retry: RetryPolicy
    delivery: Delivery
    leaving: CommitBeforeLeaving
    is_running: Callable[[], bool]

    async def deliver(self, batch: _Batch) -> None:
        """Handle the batch, to be committed; leave both to the next owner when it is no longer ours."""
        consumer, records = batch.consumer, batch.records
        self.leaving.consumer = consumer
        if await self._handle_until_done(consumer, records):
            self.delivery.batches += 1
            self.delivery.records += len(records)
            self._commit(consumer, records)
        else:
            self.delivery.batches_left += 1

    async def _handle_until_done(self, consumer: AIOKafkaConsumer, records: list[Record]) -> bool:
        """True when handled; False when the batch is to be left. Raises StopApplication when it is given up."""
        wait_ms = self.retry.wait_ms_min
        give_up_at = asyncio.get_running_loop().time() + self.retry.give_up_after_ms / 1000
        while True:
            try:
                await self.handler(records)
            except Exception as error:
                is_late = asyncio.get_running_loop().time() + wait_ms / 1000 > give_up_at
                if is_late and not isinstance(error, LogUnavailable):
                    first = records[0]
                    where = f"{first.topic}/{first.partition}/{first.offset}"
                    self.delivery.give_up(DeliveryGaveUp(f"batch at {where}: {error!r}"))
                    raise StopApplication from error
                logger.warning("a batch of %d records failed and is tried again: %r", len(records), error)
            else:
                return True
            self.delivery.retries += 1
            await asyncio.sleep(random.uniform(0.5, 1.0) * wait_ms / 1000)  # noqa: S311 - spreads retries
            wait_ms = min(2 * wait_ms, self.retry.wait_ms_max)
            if not self.is_running() or not _still_ours(consumer, records):
                return False

    def _commit(self, consumer: SharingConsumer, records: Sequence[Record]) -> None:
        """Commit exactly this batch."""
        offsets = _still_ours(consumer, records)
        if len(offsets) < len(next_offsets(records)):
            self.delivery.batches_taken_away += 1
            logger.warning("partitions were taken away while their batch was handled; their next owner repeats it")
        consumer.handled(offsets)


def _still_ours(consumer: AIOKafkaConsumer, records: Sequence[Record]) -> dict[KafkaTopicPartition, int]:
    """The batch's next offsets, of those partitions that are still assigned to this process."""
    assigned = consumer.assignment()
    offsets = {KafkaTopicPartition(*tp): offset for tp, offset in next_offsets(records).items()}
    return {tp: offset for tp, offset in offsets.items() if tp in assigned}
