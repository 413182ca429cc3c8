"""How far a consumer group has come, as Kafka remembers it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable, TopicPartition
from fallow.shared.runtime.kafka_access import KafkaAccess

BOUND_S, AGAIN_S = 10.0, 0.2
REQUEST_BOUND_MS = 5_000


async def committed_offsets(
    kafka: str | KafkaAccess, group: str, tps: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The next offset that the group will read, of each of these partitions of which it has ever said so. Raises
    LogUnavailable.

    The partitions are named, since the embedded broker answers nothing where all are asked for.
    """
    admin = AIOKafkaAdminClient(**client_options(kafka), request_timeout_ms=REQUEST_BOUND_MS)
    try:
        async with asyncio.timeout(BOUND_S):
            await admin.start()
            found = await _told(admin, group, [KafkaTopicPartition(*tp) for tp in tps])
    except (KafkaError, TimeoutError, OSError) as error:
        raise LogUnavailable(f"offsets of group {group}: {words_of(error)}") from error
    finally:
        await admin.close()
    return {(tp.topic, tp.partition): said.offset for tp, said in sorted(found.items()) if said.offset >= 0}


async def _told(
    admin: AIOKafkaAdminClient, group: str, tps: Sequence[KafkaTopicPartition]
) -> dict[KafkaTopicPartition, OffsetAndMetadata]:
    """Asks again while a broker that has just come up has no coordinator that knows yet: it says so, or leaves out a
    partition. For a partition without any offset, a broker that knows says that there is none.
    """
    while True:
        try:
            told: dict[KafkaTopicPartition, OffsetAndMetadata]
            told = await admin.list_consumer_group_offsets(group, partitions=list(tps))
        except KafkaError as error:
            if not error.retriable:
                raise
        else:
            if told.keys() >= {*tps}:
                return told
        await asyncio.sleep(AGAIN_S)
