"""A cell of its own on this machine, for one demo or replay: Kafka, Redis, topics, and every service as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml

from fallow.local.given_servers import must_speak_in_the_clear
from fallow.local.service_set import Clock, service_set
from fallow.replay.workload import CELL, Workload, WorkloadError
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.admin.topics import TopicSpec
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import declared_topics, layout_of, log_for
from fallow.shared.log.port import Outgoing
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.choose import Choice
from fallow.shared.runtime.stack.embedded_broker import make_topics
from fallow.shared.runtime.stack.server import Source
from fallow.shared.runtime.stack.services import Say, Services
from fallow.shared.runtime.tasks.cancels import end_tasks
from fallow.shared.runtime.telemetry import rss_peak_bytes

if TYPE_CHECKING:
    from fallow.local.secured import Security

EMBEDDED_JOBS_MAX = 3_000
CLIENT_ID = "fallow-cli"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Servers:
    """The Kafka and the Redis of a run, both running. Without `security` they let everybody in."""

    kafka: Choice
    redis: Choice
    security: Security | None = None

    @property
    def kafka_access(self) -> KafkaAccess:
        """Kafka's address, and the user as which this process submits and reads."""
        return KafkaAccess(self.kafka.server.address) if self.security is None else self.security.operator

    @property
    def kafka_admin(self) -> KafkaAccess:
        """Kafka's address, and the user that makes topics."""
        return KafkaAccess(self.kafka.server.address) if self.security is None else self.security.admin

    def settings_of(self, service: str) -> dict[str, str]:
        """What a service needs in its environment to come in, beside the addresses."""
        return {} if self.security is None else self.security.settings(service)

    @property
    def is_embedded(self) -> bool:
        """Whether the log is the embedded broker."""
        return self.kafka.server.source is Source.EMBEDDED

    def rss_peak_mb(self) -> dict[str, float]:
        """The most memory that each server held, where it is a process of ours, in MB."""
        pids = {name: getattr(choice.server, "pid", None) for name, choice in self._named().items()}
        return {name: round(rss_peak_bytes(pid) / 1e6, 1) for name, pid in pids.items() if pid}

    def _named(self) -> dict[str, Choice]:
        return {"kafka": self.kafka, "redis": self.redis}


@contextmanager
def running(kafka: Choice, redis: Choice, security: Security | None = None) -> Iterator[Servers]:
    """Both servers, started and in the end stopped. Raises StackError; SettingsError for settings of a Kafka with
    security where `security` is None.
    """
    if security is None:
        must_speak_in_the_clear()
    redis.server.start()
    try:
        kafka.server.start()
        try:
            yield Servers(kafka, redis, security)
        finally:
            kafka.server.stop()
    finally:
        redis.server.stop()


@dataclass(frozen=True, slots=True)
class LocalCell:
    """A running cell, and the handles by which it is fed and watched."""

    folder: Path
    servers: Servers
    namespace: str
    layout: Layout
    log: KafkaLog
    services: Services

    @property
    def diaries(self) -> Path:
        """The folder in which the nodes write down what they did."""
        return self.folder / "diaries"

    def outgoing(self, event: Event) -> Outgoing:
        """An event as a record of this cell's topics."""
        name = f"{event.type}/{event.key()}"
        return self.layout.outgoing(event, id=name, source=CLIENT_ID, wall_ms=wall_ms())

    async def unless_one_ends(self, work: Awaitable[Answer]) -> Answer:
        """What the work gives; StackError as soon as a service ends by itself, since then nothing would come of it."""
        doing = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self.services.ended())
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise StackError(str(watching.result()))
            return doing.result()
        finally:
            await end_tasks(doing, watching)

    def rss_mb(self) -> dict[str, float]:
        """The most memory that each process held, in MB."""
        return {**self.services.rss_peak_mb(), **self.servers.rss_peak_mb()}


@asynccontextmanager
async def stage_for(
    workload: Workload,
    servers: Servers,
    folder: Path,
    namespace: str,
    clock: Clock,
    *,
    say: Say,
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[LocalCell]:
    """All services, ready, on topics of their own, with `more` environment; `say` gets who is late. On secured servers
    each is a user with the rights of its own, and decisions are signed. Raises WorkloadError, StackError,
    LogUnavailable, ViewUnavailable.
    """
    refuse_what_the_embedded_broker_cannot_hold(workload, servers)
    workload = signed_where_secured(workload, servers)
    cell_file, nodes_file = write_files(workload, folder)
    embedded = servers.is_embedded
    await make_declared_topics(servers, declared_topics(workload.cell_file, namespace))
    if servers.security is not None:
        await servers.security.put_in_force(workload.cell_file, namespace)
    wanted = service_set(
        kafka=servers.kafka.server.address,
        redis=servers.redis.server.address,
        namespace=namespace,
        cell_file=cell_file,
        data_dir=folder,
        nodes_file=nodes_file,
        clock=clock,
        embedded=embedded,
        more=more,
    )
    specs = [replace(spec, environment={**spec.environment, **servers.settings_of(spec.name)}) for spec in wanted.specs]
    services = Services(specs, environment=wanted.environment, run_dir=folder / "logs")
    log = log_for(servers.kafka_access, CLIENT_ID, embedded=embedded)
    try:
        await services.start()
        await log.start()
        await services.wait_ready(say=say)
        yield LocalCell(folder, servers, namespace, layout_of(workload.cell_file, namespace), log, services)
    finally:
        await log.stop()
        await services.stop()


async def make_declared_topics(servers: Servers, declared: Sequence[TopicSpec]) -> None:
    """Create the topics where they are missing. Raises StackError where they differ, LogUnavailable."""
    embedded = servers.is_embedded
    if embedded:
        make_topics(servers.kafka.server.address, [topic.name for topic in declared])
    report = await create_topics(servers.kafka_admin, declared, embedded=embedded)
    if report.must_stop:
        raise StackError("; ".join(found.text for found in report.differences if not found.is_harmless))


def signed_where_secured(workload: Workload, servers: Servers) -> Workload:
    """The workload, on secured servers with the public key in its cell file."""
    if servers.security is None:
        return workload
    return replace(workload, cell_file=servers.security.signed(workload.cell_file))


def refuse_what_the_embedded_broker_cannot_hold(workload: Workload, servers: Servers) -> None:
    """It keeps 5 MB of each partition: with more jobs the beginning of the log would be gone before the end of the
    day.
    """
    jobs = workload.jobs
    if servers.is_embedded and jobs > EMBEDDED_JOBS_MAX:
        most = f"the embedded broker keeps the log of at most {EMBEDDED_JOBS_MAX}"
        raise WorkloadError(f"{jobs} jobs: {most}; name a real Kafka by FALLOW_KAFKA=host:port")


def write_files(workload: Workload, folder: Path) -> tuple[Path, Path]:
    """The cell file and the list of nodes, where the services read them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "diaries").mkdir(exist_ok=True)
    cell_file, nodes_file = folder / "cell.yaml", folder / "nodes.jsonl"
    content = workload.cell_file.model_dump(mode="json", exclude_none=False)
    cell_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    lines = [f'{{"cell":"{CELL}","node":{encode(node).decode()}}}\n' for node in workload.nodes]
    nodes_file.write_text("".join(lines), encoding="utf-8")
    return cell_file, nodes_file
