"""The members of a consumer group, as Kafka knows it."""

from __future__ import annotations

import asyncio

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable
from fallow.shared.runtime.kafka_access import KafkaAccess

BOUND_S, AGAIN_S = 10.0, 0.2
REQUEST_BOUND_MS = 5_000

_CODE, _MEMBERS = 0, 5
"""Where the answer for a group has its error, and its members (DescribeGroups, all versions)."""


async def member_count(kafka: str | KafkaAccess, group: str) -> int | None:
    """How many processes are in the group; None from a broker that cannot tell, as the embedded one. One that was
    killed counts until its session is over. Raises LogUnavailable.
    """
    admin = AIOKafkaAdminClient(**client_options(kafka), request_timeout_ms=REQUEST_BOUND_MS)
    try:
        async with asyncio.timeout(BOUND_S):
            await admin.start()
            return await _count(admin, group)
    except IncompatibleBrokerVersion:
        return None
    except (KafkaError, TimeoutError, OSError) as error:
        raise LogUnavailable(f"members of group {group}: {words_of(error)}") from error
    finally:
        await admin.close()


async def _count(admin: AIOKafkaAdminClient, group: str) -> int:
    """Asks again while a broker that has just come up has no coordinator that knows yet."""
    while True:
        try:
            (answer,) = await admin.describe_consumer_groups([group])
            (told,) = answer.groups
            if not told[_CODE]:
                return len(told[_MEMBERS])
            raise for_code(told[_CODE])(f"group {group}")
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(AGAIN_S)
