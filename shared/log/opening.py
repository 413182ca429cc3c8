"""How every service comes to its log: wait for Kafka, compare the topics with what is declared, and stop where they
differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from fallow.shared.cluster.model.config import CellFile
from fallow.shared.log.admin.access_rules import Rule, expected_rules, parse_access
from fallow.shared.log.admin.topic_admin import check_topics
from fallow.shared.log.admin.topics import TopicsFile, TopicSpec, expected_topics, parse_topics
from fallow.shared.log.inputs.lag import watch_lag
from fallow.shared.log.kafka.groups.group_timers import EMBEDDED
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.keys.service_signers import ServiceSigners
from fallow.shared.log.keys.signers import Signers
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Log, LogUnavailable, Member
from fallow.shared.log.watch import watch_log
from fallow.shared.runtime.files.cell_file import MistakeIn, no_mistake_in
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.process import Context, wait_for

AWAY = (LogUnavailable, OSError)
ACCESS_FILE = Path(__file__).parents[2] / "deploy" / "kafka" / "access.yaml"
TOPICS_FILE = Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml"

EMBEDDED_FETCH_WAIT_MS = 10

OpenLog = Callable[[Context[Any], CellFile], Awaitable[Log | None]]
"""How a process comes to its log, connected; None when it is to stop before that."""


class WrongTopics(Exception):
    """The topics are not what `deploy/kafka/topics.yaml` declares. Going on could put records where no service reads
    them.
    """


def layout_of(file: CellFile, namespace: str) -> Layout:
    """Where the records of this cell file's cells belong, and who signs their decisions."""
    ordinals = {cell.name: cell.ordinal for cell in file.cells}
    return Layout(namespace, ordinals, Signers(file), frozenset(file.own_topics))


def layout_for(context: Context[Any], file: CellFile, mistake_in: MistakeIn = no_mistake_in) -> Layout:
    """The layout for a service: it reads the keys again where its cell file has changed, unless it finds a mistake in
    it, and tells what it skips.
    """
    ordinals = {cell.name: cell.ordinal for cell in file.cells}
    context.telemetry.knows(ordinals)
    return Layout(context.settings.namespace, ordinals, ServiceSigners(context, file, mistake_in))


def topics_file(file: CellFile) -> TopicsFile:
    """What deploy/kafka/topics.yaml declares, with the retention that the cell file sets. Raises TopicsFileError."""
    return _all_topics().with_retention(file.retention_hours)


@cache
def _all_topics() -> TopicsFile:
    return parse_topics(TOPICS_FILE.read_text(encoding="utf-8"))


def declared_topics(file: CellFile, namespace: str, replicas: int = 1) -> tuple[TopicSpec, ...]:
    """Every topic that this cell file needs."""
    declared = topics_file(file)
    cells = max(cell.ordinal for cell in file.cells) + 1
    return expected_topics(declared, namespace, cells, file.own_topics, replicas=replicas)


def declared_access(file: CellFile, namespace: str) -> frozenset[Rule]:
    """Every right that deploy/kafka/access.yaml gives, for the tenants of a cell file. Raises AccessFileError."""
    topics = topics_file(file).topics
    access = parse_access(ACCESS_FILE.read_text(encoding="utf-8"), topics)
    return expected_rules(access, namespace, topics, file.own_topics)


def log_for(kafka: str | KafkaAccess, client_id: str, *, embedded: bool) -> KafkaLog:
    """The log, not connected. The embedded broker keeps little, so what it gets is packed; it lets members wait; a
    fetch that waits there does not wake when something comes, so none may wait for long; and the time that it says it
    gave a record is made up.
    """
    if embedded:
        wait_ms = EMBEDDED_FETCH_WAIT_MS
        return KafkaLog(kafka, client_id, compression="gzip", timers=EMBEDDED, fetch_wait_ms=wait_ms, has_clock=False)
    return KafkaLog(kafka, client_id)


async def open_log(context: Context[Any], file: CellFile) -> KafkaLog | None:
    """The log, connected, with every topic as declared; None when the process is to stop before that.

    Raises WrongTopics on a real broker where a topic is missing or different.
    """
    settings = context.settings
    log = log_for(settings.kafka_access, context.instance, embedded=settings.embedded)

    async def connected() -> str | None:
        await log.start()
        return None

    async def compared() -> str | None:
        report = await check_topics(settings.kafka_access, declared, embedded=settings.embedded)
        if report.must_stop:
            words = "; ".join(found.text for found in report.differences if not found.is_harmless)
            raise WrongTopics(f"{words}. Run: fallow topics create")
        for difference in report.differences:
            way = ". Run: fallow topics create" if difference.is_settable else ""
            context.logger.warning("a topic is not as declared", about=difference.text)
            context.health.noted(f"topic {difference.topic}", f"{difference.text}{way}")
        return None

    what, declared = f"Kafka at {settings.kafka}", declared_topics(file, settings.namespace, settings.replicas)
    try:
        for step in (connected, compared):
            if not await wait_for(context, what, step, AWAY):
                await log.stop()
                return None
    except WrongTopics:
        await log.stop()
        raise
    context.run_beside(watch_lag(context, log), "watch of the lag")
    context.run_beside(watch_log(context, log), "watch of Kafka")
    return log


async def joined(context: Context[Any], member: Member) -> bool:
    """Take part in a group, as soon as Kafka lets us; False when the process is to stop before that."""

    async def join() -> str | None:
        await member.start()
        return None

    return await wait_for(context, "membership of its group", join, AWAY)
