"""One aiokafka producer under a time bound: opened, used, and thrown away whole after the first doubt.

The idempotent producer of aiokafka never gives a batch up: what has timed out for the caller would be sent again when
the broker comes back, behind the caller's back. So after any failure the producer is abandoned with all that it holds,
and the next call opens a fresh one. A request already on the wire may still arrive; version checks make it harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.errors import BrokerResponseError, KafkaError, MessageSizeTooLargeError, ProducerClosed
from aiokafka.producer.message_accumulator import BatchBuilder

from fallow.shared.log.kafka.closing import connect
from fallow.shared.log.kafka.connection import client_options, opening_bound_s
from fallow.shared.log.kafka.kept_client import KeptClient
from fallow.shared.log.kafka.openings import Openings
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import (
    RECORD_BYTES_MAX,
    LogRefused,
    LogUnavailable,
    Outgoing,
    RecordTooLarge,
    Refusal,
    refusal,
)
from fallow.shared.runtime.kafka_access import KafkaAccess, access_to

Compression = Literal["gzip"]

BATCH_BYTES_MAX = 131_072
"""A batch counts against a topic's max.message.bytes as a whole, so it stays well below the smallest of these."""

ABANDON_BOUND_S = 2.0
"""How long the connections of an abandoned producer may take to close."""

logger = logging.getLogger(__name__)


class InvalidRecord(BrokerResponseError):  # type: ignore[misc]  # aiokafka ships no types
    """The topic does not take such a record: one without a key, in a compacted topic."""

    errno = 87
    message = "INVALID_RECORD"


# aiokafka 0.14 does not know this code, and would take it for an error of the broker that may pass.
kafka_errors.kafka_errors.setdefault(InvalidRecord.errno, InvalidRecord)

REFUSALS: dict[type[KafkaError], Refusal] = {
    kafka_errors.TopicAuthorizationFailedError: Refusal.NOT_ALLOWED,
    kafka_errors.ClusterAuthorizationFailedError: Refusal.NOT_ALLOWED,
    kafka_errors.TransactionalIdAuthorizationFailed: Refusal.NOT_ALLOWED,
    kafka_errors.AuthenticationFailedError: Refusal.NOT_ALLOWED,
    kafka_errors.SaslAuthenticationFailed: Refusal.NOT_ALLOWED,
    kafka_errors.InvalidTimestampError: Refusal.TIMESTAMP,
    kafka_errors.MessageSizeTooLargeError: Refusal.TOO_LARGE,
    kafka_errors.RecordListTooLargeError: Refusal.TOO_LARGE,
    kafka_errors.InvalidTopicError: Refusal.INVALID,
    kafka_errors.PolicyViolationError: Refusal.INVALID,
    InvalidRecord: Refusal.INVALID,
    kafka_errors.UnsupportedVersionError: Refusal.UNSUPPORTED,
    kafka_errors.UnsupportedForMessageFormatError: Refusal.UNSUPPORTED,
    kafka_errors.UnsupportedCodecError: Refusal.UNSUPPORTED,
    kafka_errors.InvalidRequiredAcksError: Refusal.UNSUPPORTED,
}
"""What a broker answers to a record that it does not take now and will not take later. All else may pass."""


def refused(what: str, error: Exception) -> LogRefused | None:
    """The refusal that this error is; None where a repeat may help."""
    code = next((REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS), None)
    if code is None:
        return None
    reason = f"{what} is refused ({code}): {words_of(error)}"
    return refusal(code, reason)


class BoundedProducer:
    """Opens a producer when one is needed and hands out the current one; forgets it on demand.

    `place` is the topic and perhaps the partition that it writes to: then it is open when it is connected to that
    partition's leader. An opening that takes longer than a call may wait goes on for the next call.
    `openings` are shared by producers of a process: it begins to open in its turn.
    """

    def __init__(
        self,
        kafka: str | KafkaAccess,
        client_id: str,
        *,
        request_timeout_ms: int,
        compression: Compression | None,
        place: tuple[str, int | None] | None = None,
        openings: Openings | None = None,
    ) -> None:
        self._kafka = access_to(kafka)
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._compression = compression
        self._place = place
        bound_s = opening_bound_s(self._kafka, request_timeout_ms / 1000)
        self._kept = KeptClient(self._make, self._start, _close_without_sending, bound_s=bound_s, openings=openings)

    async def current(self, until_s: float) -> AIOKafkaProducer:
        """The producer in use, opened if there is none, for a call that ends at this time of the loop's clock; the
        caller bounds the time. Raises LogUnavailable, KafkaError, TimeoutError: then nothing was sent.
        """
        return await self._kept.opened(until_s)

    def _make(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            **client_options(self._kafka),
            client_id=self._client_id,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            request_timeout_ms=self._request_timeout_ms,
            max_request_size=RECORD_BYTES_MAX,
            max_batch_size=BATCH_BYTES_MAX,
            compression_type=self._compression,
        )

    async def _start(self, producer: AIOKafkaProducer) -> None:
        try:
            await connect(producer)
            if self._place is not None:
                await _reach(producer, *self._place)
        except KafkaError as error:
            what = f"a producer at {self._kafka}"
            raise (
                refused(what, error) or LogUnavailable(f"no {what.removeprefix('a ')}: {words_of(error)}")
            ) from error

    def abandon(self, producer: AIOKafkaProducer) -> None:
        """Stop using this producer; whatever waits on it fails at once. Harmless when it is abandoned already."""
        self._kept.close(producer)

    async def close(self) -> None:
        """Close everything that was ever opened here, within a bound. Nothing unsent is sent any more."""
        await self._kept.stop()


async def _reach(producer: AIOKafkaProducer, topic: str, partition: int | None) -> None:
    """Learn of the topic, and connect to the broker that leads the partition, as the first record would. Where nothing
    is known of them, the first record waits for it.
    """
    await producer.client.add_topic(topic)
    if partition is not None:
        leader = producer.client.cluster.leader_for_partition(KafkaTopicPartition(topic, partition))
        if leader is not None and leader >= 0:
            await producer.client.ready(leader)


async def _close_without_sending(producer: AIOKafkaProducer) -> None:
    """Close a producer without its flush, which would wait for the broker for ever.

    This reaches into aiokafka 0.14 (`_sender`, `_message_accumulator`), whose public stop() knows only the flush. The
    contract suite pins that what an abandoned producer still held is never sent.
    """
    sender: asyncio.Task[None] | None = producer._sender.sender_task  # noqa: SLF001 - see above
    if sender is not None:
        sender.cancel()
    try:
        async with asyncio.timeout(ABANDON_BOUND_S):
            # Requests on the wire end with their connections; their batches go back to the queue.
            await producer.client.close()
            if sender is not None:
                await asyncio.wait([sender])
    except (TimeoutError, KafkaError, OSError) as error:
        logger.warning("the connections of an abandoned producer do not close: %r", error)
    accumulator = producer._message_accumulator  # noqa: SLF001 - see above
    # A batch that went back to the queue is no longer among the pending ones, where its callback looks for it.
    accumulator._pending_batches.update(batch for queue in accumulator._batches.values() for batch in queue)  # noqa: SLF001
    accumulator.fail_all(ProducerClosed())
    for waiter in (waiter for batch in accumulator._pending_batches for waiter in (batch.future, batch._drain_waiter)):  # noqa: SLF001
        if waiter.done() and not waiter.cancelled():
            waiter.exception()  # no task waits for it any more: asyncio would report it as never retrieved
    # With the sender gone and every batch failed there is nothing left to wait for; this marks the producer as closed.
    with contextlib.suppress(TimeoutError, KafkaError, OSError):
        async with asyncio.timeout(ABANDON_BOUND_S):
            await producer.stop()


async def send_all(
    producer: AIOKafkaProducer, messages: Sequence[Outgoing], acknowledgements: list[asyncio.Future[Any]]
) -> None:
    """Put records into the producer, in their order; their acknowledgements are added as they come to be, so that a
    failure in the middle leaves none unknown. Raises LogUnavailable, RecordTooLarge.

    Records whose partitions are given go in by batches, which costs a fraction of one at a time.
    """
    if len(messages) == 1 or any(message.partition is None for message in messages):
        for message in messages:
            acknowledgements.append(await send(producer, message))  # noqa: PERF401 - kept even if one fails
        return
    batches: dict[tuple[str, int], BatchBuilder] = {}
    for message in messages:
        assert message.partition is not None, "looked at above"
        at = (message.topic, message.partition)
        if at not in batches:
            await _check_partition(producer, message)
            batches[at] = producer.create_batch()
        while not _takes(batches[at], message):
            acknowledgements.append(await _send_batch(producer, at, batches[at]))
            batches[at] = producer.create_batch()
    for at, batch in batches.items():
        acknowledgements.append(await _send_batch(producer, at, batch))


def _takes(batch: BatchBuilder, message: Outgoing) -> bool:
    """Whether the record is in the batch now. An empty one takes any, so only there one can be too large."""
    headers = list(message.headers)
    if batch.append(timestamp=None, key=message.key, value=message.value, headers=headers) is None:
        return False
    if batch.record_count() == 1 and batch.size() > RECORD_BYTES_MAX:
        raise RecordTooLarge(f"record for {message.topic}: {batch.size()} bytes")
    return True


async def _send_batch(producer: AIOKafkaProducer, at: tuple[str, int], batch: BatchBuilder) -> asyncio.Future[Any]:
    # Closed, so that no other append's record gets into it and shares its fate.
    batch.close()
    future: asyncio.Future[Any] = await producer.send_batch(batch, at[0], partition=at[1])
    return future


async def _check_partition(producer: AIOKafkaProducer, message: Outgoing) -> None:
    partitions = await producer.partitions_for(message.topic)
    if message.partition is not None and message.partition not in partitions:
        raise LogUnavailable(f"{message.topic} has no partition {message.partition}, only {len(partitions)}")


async def send(producer: AIOKafkaProducer, message: Outgoing) -> asyncio.Future[Any]:
    """Put one record into the producer; the future is its acknowledgement. Raises LogUnavailable, RecordTooLarge."""
    await _check_partition(producer, message)
    try:
        future: asyncio.Future[Any] = await producer.send(
            message.topic,
            value=message.value,
            key=message.key,
            partition=message.partition,
            headers=list(message.headers),
        )
    except MessageSizeTooLargeError as error:
        raise RecordTooLarge(f"record for {message.topic}: {error}") from error
    return future
