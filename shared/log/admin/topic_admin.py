"""Creates topics in Kafka and compares them with the declared ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from fallow.shared.log.admin.topics import (
    RECORD_BYTES,
    RETENTION,
    ActualTopic,
    Difference,
    DifferenceKind,
    TopicSpec,
    differences,
)
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.kafka.words import words_of
from fallow.shared.log.port import LogUnavailable, TopicPartition
from fallow.shared.runtime.kafka_access import KafkaAccess

ADMIN_BOUND_S = 30.0
REQUEST_BOUND_MS = 10_000
VISIBLE_ATTEMPTS = 50
OWN_SETTING = 1
"""How Kafka marks a setting that was given to the topic itself (DescribeConfigs: DYNAMIC_TOPIC_CONFIG)."""

FLUSH = "flush.messages"
"""After how many records the broker flushes a topic."""

VISIBLE_STEP_S = 0.1
"""Kafka answers a creation or another setting before each broker knows of it: its visibility is looked for in such
steps, VISIBLE_ATTEMPTS times.
"""


@dataclass(frozen=True, slots=True)
class TopicsReport:
    """How the topics are. `must_stop`: no service may start on them."""

    differences: tuple[Difference, ...]
    must_stop: bool


async def check_topics(
    kafka: str | KafkaAccess, expected: Sequence[TopicSpec], *, embedded: bool = False
) -> TopicsReport:
    """Compare what is there with what is expected. Raises LogUnavailable.

    The embedded broker makes topics by itself, always with four partitions, and knows no settings: a difference there
    is reported but stops no process, unless there are fewer partitions than cells.
    """
    async with _admin(kafka) as admin:
        actual = await _actual(admin, expected, with_config=not embedded)
    found = differences(expected, actual)
    if embedded:
        return TopicsReport(found, must_stop=any(_loses_cells(difference) for difference in found))
    return TopicsReport(found, must_stop=not all(difference.is_harmless for difference in found))


async def missing_topics(kafka: str | KafkaAccess, expected: Sequence[TopicSpec]) -> list[str]:
    """The names of those that are not there. Raises LogUnavailable."""
    async with _admin(kafka) as admin:
        actual = await _actual(admin, expected, with_config=False)
    return [spec.name for spec in expected if spec.name not in actual]


async def create_topics(
    kafka: str | KafkaAccess, expected: Sequence[TopicSpec], *, replicas: int = 1, embedded: bool = False
) -> TopicsReport:
    """Create what is missing, let grow what may grow, set how long records are kept, change nothing else; report what
    still differs.

    May be repeated, also by several at once. On the embedded broker it only reports. Raises LogUnavailable.
    """
    if not embedded:
        async with _admin(kafka) as admin:
            actual = await _actual(admin, expected, with_config=False)
            await _create_missing(admin, [spec for spec in expected if spec.name not in actual], replicas)
            await _grow(admin, expected, actual)
            await _wait_until_visible(admin, expected)
            await _keep_as_long(admin, expected)
    return await check_topics(kafka, expected, embedded=embedded)


async def delete_records(kafka: str | KafkaAccess, tp: TopicPartition, before: int) -> None:
    """Let the broker forget the records below an offset. Raises LogUnavailable."""
    async with _admin(kafka) as admin:
        await admin.delete_records({KafkaTopicPartition(*tp): RecordsToDelete(before_offset=before)})


async def topic_record_bytes_max(kafka: str | KafkaAccess, topic: str) -> int | None:
    """The largest record, and batch of records, that a topic takes; None where the broker knows no such setting.
    Raises LogUnavailable.
    """
    async with _admin(kafka) as admin:
        found = (await _config(admin, [topic])).get(topic, {}).get(RECORD_BYTES)
    return None if found is None else int(found)


async def flushes_each_record(kafka: str | KafkaAccess, topic: str) -> bool:
    """Whether the disk has each record of a topic before the broker acknowledges it, as the broker itself says: by a
    setting of the topic or by the broker's own. Raises LogUnavailable.
    """
    async with _admin(kafka) as admin:
        return (await _config(admin, [topic]))[topic].get(FLUSH) == "1"


def _loses_cells(difference: Difference) -> bool:
    return difference.kind is DifferenceKind.TOO_FEW_PARTITIONS and difference.is_growable


@asynccontextmanager
async def _admin(kafka: str | KafkaAccess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**client_options(kafka), request_timeout_ms=REQUEST_BOUND_MS)
    try:
        async with asyncio.timeout(ADMIN_BOUND_S):
            await admin.start()
            yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        raise LogUnavailable(f"topics at {kafka}: {words_of(error)}") from error
    finally:
        await admin.close()


async def _actual(
    admin: AIOKafkaAdminClient, expected: Sequence[TopicSpec], *, with_config: bool
) -> dict[str, ActualTopic]:
    names = {spec.name for spec in expected}
    present = {
        topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics() if topic["topic"] in names
    }
    config = await _config(admin, sorted(present)) if with_config else {}
    return {name: ActualTopic(partitions, config.get(name)) for name, partitions in present.items()}


async def _config(
    admin: AIOKafkaAdminClient, names: Sequence[str], *, only_own: bool = False
) -> dict[str, Mapping[str, str]]:
    """The settings of these topics; with `only_own` those that were set for the topic itself."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    found: dict[str, Mapping[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for code, message, _type, name, entries in response.resources:
            if code:
                raise for_code(code)(f"settings of {name}: {message}")
            found[name] = {entry[0]: entry[1] for entry in entries if not only_own or entry[3] == OWN_SETTING}
    return found


async def _create_missing(admin: AIOKafkaAdminClient, missing: Sequence[TopicSpec], replicas: int) -> None:
    if not missing:
        return
    new = [NewTopic(spec.name, spec.partitions, replicas, topic_configs=dict(spec.config)) for spec in missing]
    response = await admin.create_topics(new)
    for name, code, message in response.topic_errors:
        # Another process may have created it in the meantime: then the comparison that follows judges it.
        if code not in (0, TopicAlreadyExistsError.errno):
            raise for_code(code)(f"{name}: {message}")


async def _grow(admin: AIOKafkaAdminClient, expected: Sequence[TopicSpec], actual: Mapping[str, ActualTopic]) -> None:
    small = [d.topic for d in differences(expected, actual) if _loses_cells(d)]
    growing = {spec.name: NewPartitions(spec.partitions) for spec in expected if spec.name in small}
    if growing:
        await admin.create_partitions(growing)


async def _keep_as_long(admin: AIOKafkaAdminClient, expected: Sequence[TopicSpec]) -> None:
    """Set the retention where it differs. Kafka takes a topic's own settings as a whole: all others are said again."""
    actual = await _actual(admin, expected, with_config=True)
    differs = {found.topic for found in differences(expected, actual) if found.is_settable}
    own = await _config(admin, sorted(differs), only_own=True)
    wanted = {spec.name: dict(spec.config)[RETENTION] for spec in expected if spec.name in differs}
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, name, configs={**own[name], RETENTION: wanted[name]})
        for name in sorted(differs)
    ]
    for resource in resources:
        for response in await admin.alter_configs([resource]):
            for code, message, _type, name in response.resources:
                if code:
                    raise for_code(code)(f"settings of {name}: {message}")
    if resources:
        await _wait_until_visible(admin, expected, with_config=True)


async def _wait_until_visible(
    admin: AIOKafkaAdminClient, expected: Sequence[TopicSpec], *, with_config: bool = False
) -> None:
    """Return when the brokers show the partitions that were asked for, with `with_config` also the retention; after
    VISIBLE_ATTEMPTS looks all the same: the comparison that follows tells what still differs.
    """
    for _ in range(VISIBLE_ATTEMPTS):
        actual = await _actual(admin, expected, with_config=with_config)
        if not any(found.is_growable or found.is_settable for found in differences(expected, actual)):
            return
        await asyncio.sleep(VISIBLE_STEP_S)
