"""How every service comes to its log: wait for Kafka, compare the topics with what is declared, and stop where they
differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.cluster.config import CellFile
from shared.log.group_timers import EMBEDDED
from shared.log.kafka import KafkaLog
from shared.log.layout import Layout
from shared.log.port import LogUnavailable
from shared.log.topic_admin import check_topics
from shared.log.topics import TopicSpec, expected_topics, parse_topics
from shared.runtime.process import Context, wait_for

TOPICS_FILE = Path(__file__).parents[2] / "deploy" / "kafka" / "topics.yaml"

EMBEDDED_FETCH_WAIT_MS = 10


class WrongTopics(Exception):
    """The topics are not what `deploy/kafka/topics.yaml` declares. Going on could put records where nobody reads
    them.
    """


def layout_of(file: CellFile, namespace: str) -> Layout:
    """Where the records of this cell file's cells belong."""
    return Layout(namespace, {cell.name: cell.ordinal for cell in file.cells})


def declared_topics(file: CellFile, namespace: str, replicas: int = 1) -> tuple[TopicSpec, ...]:
    """Every topic that this cell file needs."""
    declared = parse_topics(TOPICS_FILE.read_text(encoding="utf-8"))
    cells = max(cell.ordinal for cell in file.cells) + 1
    tenants = [tenant.name for tenant in file.tenants if tenant.own_topic]
    return expected_topics(declared, namespace, cells, tenants, replicas=replicas)


def log_for(bootstrap: str, client_id: str, *, embedded: bool) -> KafkaLog:
    """The log, not connected. The embedded broker keeps little, so what it gets is packed; it lets members wait; and a
    fetch that waits there does not wake when something comes, so none may wait for long.
    """
    if embedded:
        wait_ms = EMBEDDED_FETCH_WAIT_MS
        return KafkaLog(bootstrap, client_id, compression="gzip", timers=EMBEDDED, fetch_wait_ms=wait_ms)
    return KafkaLog(bootstrap, client_id)


async def open_log(context: Context[Any], file: CellFile) -> KafkaLog | None:
    """The log, connected, with every topic as declared; None when the process is to stop before that.

    Raises WrongTopics on a real broker where a topic is missing or different.
    """
    settings = context.settings
    log = log_for(settings.kafka, context.instance, embedded=settings.embedded)

    async def connected() -> str | None:
        await log.start()
        return None

    if not await wait_for(context, f"Kafka at {settings.kafka}", connected, (LogUnavailable, OSError)):
        return None
    declared = declared_topics(file, settings.namespace, settings.replicas)
    report = await check_topics(settings.kafka, declared, embedded=settings.embedded)
    if report.must_stop:
        await log.stop()
        raise WrongTopics(
            "; ".join(str(difference) for difference in report.differences) + ". Run: fallow topics create"
        )
    return log
