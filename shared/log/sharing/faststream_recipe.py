"""The only way in which this project subscribes through FastStream: it reads batches and hands them to a Delivery.

FastStream's defaults lose data here: the default policy commits before the handler has succeeded, one odd header drops
a whole batch, `ack` commits more than was handled, a failed commit is swallowed, and a sender may choose where a return
value goes. `tests/kafka/sharing/test_faststream_hazards.py` shows each of them on a real Kafka; this recipe avoids them
all.
"""

# No `from __future__ import annotations`: FastStream reads the annotations of a nested handler when the program runs.

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import KafkaError
from faststream import AckPolicy
from faststream.exceptions import StopApplication
from faststream.kafka import KafkaBroker
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from fallow.shared.log.kafka.connection import tls_of
from fallow.shared.log.kafka.groups.group_timers import EMBEDDED, METADATA_AGE_MS, QUICK, GroupTimers
from fallow.shared.log.kafka.groups.sharing import IDLE_WAIT_MS, CommitBeforeLeaving, SharingConsumer
from fallow.shared.log.kafka.reader import PARTITION_FETCH_BYTES_MAX
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable, Record
from fallow.shared.log.sharing.delivery import Delivery, DeliveryGaveUp
from fallow.shared.runtime.kafka_access import KafkaAccess, Mechanism, access_to

GRACEFUL_STOP_S = 10.0
MAX_POLL_INTERVAL_MS = 300_000
"""Far above the time after which a failing batch is given up, so that retrying never costs the membership."""

BATCH_WAIT_MS = 1
"""FastStream sleeps this long after each empty poll; our consumer sees to it that such a poll lasts longer."""

EMBEDDED_WAIT_MS = 20
"""A fetch that waits at the embedded broker does not wake when something comes."""


class SharingSettings(Protocol):
    """What a subscription needs of a service's settings."""

    @property
    def kafka_access(self) -> KafkaAccess:
        """Kafka's address, and the user as which a client comes in."""

    @property
    def embedded(self) -> bool:
        """Whether that is the embedded broker."""

    @property
    def batch_records(self) -> int:
        """The most records of a batch."""


def library_logger() -> logging.Logger:
    """FastStream's logger, whose lines go the way of all others: it brings a handler of its own, with colours."""
    logger = logging.getLogger("faststream")
    logger.handlers.clear()
    logger.propagate = True
    logger.addFilter(_is_news)
    return logger


def _is_news(record: logging.LogRecord) -> bool:
    """That no topics are made here is what this recipe asks for."""
    return "Auto create topics is disabled" not in record.getMessage()


class SteadyBroker(KafkaBroker):
    """FastStream's broker, reading by consumers that no record can stop. It has one subscription."""

    is_paced = True
    delivery: Delivery | None = None

    async def _connect(self) -> Callable[..., AIOKafkaConsumer]:
        await super()._connect()
        config = self.config.broker_config
        assert isinstance(config.builder, partial), "FastStream builds its consumers in another way now"
        assert self.delivery is not None, "a broker is subscribed before it is started"
        config.builder = partial(
            SharingConsumer, delivery=self.delivery, is_paced=self.is_paced, **config.builder.keywords
        )
        return config.builder


def make_broker(kafka: str | KafkaAccess, client_id: str, *, embedded: bool = False) -> SteadyBroker:
    """A FastStream broker that creates no topics, writes idempotently and logs only what goes wrong."""
    access = access_to(kafka)
    broker = SteadyBroker(
        access.addresses.split(","),  # FastStream would take several addresses for one
        security=_security_of(access),
        client_id=client_id,
        acks="all",
        enable_idempotence=True,
        compression_type="gzip" if embedded else None,
        allow_auto_create_topics=False,
        ack_policy=AckPolicy.MANUAL,
        apply_types=False,
        graceful_timeout=GRACEFUL_STOP_S,
        metadata_max_age_ms=METADATA_AGE_MS,
        logger=library_logger(),
        log_level=logging.DEBUG,
    )
    broker.is_paced = not embedded
    return broker


def _security_of(access: KafkaAccess) -> BaseSecurity:
    """The access in FastStream's terms."""
    tls = tls_of(access)
    if not access.protocol.has_password:
        return BaseSecurity(ssl_context=tls, use_ssl=tls is not None)
    proof = {
        Mechanism.PLAIN: SASLPlaintext,
        Mechanism.SCRAM_SHA_256: SASLScram256,
        Mechanism.SCRAM_SHA_512: SASLScram512,
    }[access.mechanism]
    return proof(access.username, access.password, ssl_context=tls, use_ssl=tls is not None)


def subscribe_batches(
    broker: SteadyBroker,
    topics: Sequence[str],
    group: str,
    delivery: Delivery,
    *,
    max_records: int = 500,
    timers: GroupTimers = QUICK,
) -> None:
    """Hand every record of these topics to `delivery`, in batches, at least once. Call before the broker is started.

    When a batch is given up, the subscription stops and `Delivery.given_up` says so. `timers` are EMBEDDED on the
    embedded broker.
    """
    assert broker.delivery is None, "a broker has one subscription"
    broker.delivery = delivery
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
        listener=CommitBeforeLeaving(delivery),
    )
    delivery.is_running = lambda: subscriber.running

    @subscriber
    async def on_batch(batch: list[Record]) -> None:
        try:
            await delivery.deliver(batch)
        except DeliveryGaveUp as error:
            raise StopApplication from error


async def parse_safely(records: Sequence[Record], original: Callable[[Any], Awaitable[Any]]) -> Any:
    """Let FastStream see no header at all: it would fail on null or non-UTF-8 ones, and obey `reply_to`. It would also
    take every record apart, which no service needs: it sees none but the place of the first.

    The body is our batch, headers included. Nothing is injected into the handler (`apply_types`): for that FastStream
    would hand each batch to a thread and back.
    """
    message = await original((_place_of(records[0]),))
    message.body = list(records)
    return message


def _place_of(record: Record) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(
        record.topic, record.partition, record.offset, record.timestamp_ms, 0, None, None, None, -1, -1, ()
    )


async def leave_raw(message: Any) -> list[Record]:
    """No decoding by the framework: bytes are decoded one record at a time, by the consumer recipe."""
    batch: list[Record] = message.body
    return batch


class FastStreamSubscription:
    """A subscription by FastStream. One that did not start is no good for a second try."""

    def __init__(
        self, settings: SharingSettings, client_id: str, topics: Sequence[str], group: str, delivery: Delivery
    ) -> None:
        """Raises LogUnavailable where a file of certificates cannot be used just now."""
        self._broker = make_broker(settings.kafka_access, client_id, embedded=settings.embedded)
        timers = EMBEDDED if settings.embedded else QUICK
        most = settings.batch_records
        subscribe_batches(self._broker, topics, group, delivery, max_records=most, timers=timers)

    async def start(self) -> None:
        """As the port says."""
        try:
            await self._broker.start()
        except (KafkaError, OSError) as error:
            await self.stop()
            raise LogUnavailable(words_of(error)) from error

    async def stop(self) -> None:
        """As the port says."""
        await self._broker.stop()
