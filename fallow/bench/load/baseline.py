"""The baseline of a load: bare aiokafka moves the same bytes over the same hops, with no decoding and no decision."""

from __future__ import annotations

import asyncio
import os
import sys
from array import array
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition

from fallow.bench.load.job_mix import Ready, jobs
from fallow.bench.load.relay import Hop
from fallow.bench.load.sender import Sender
from fallow.bench.load.stages import cell_of, fresh_namespace
from fallow.bench.load.traffic import Flow
from fallow.local.local_cell import Servers, make_declared_topics
from fallow.shared.log.kafka.connection import client_options
from fallow.shared.log.opening import declared_topics
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.stack.child import Child, StackError
from fallow.shared.runtime.tasks.cancels import end_tasks

PARTITIONS = 12
COME_WAIT_S = 60.0
SETTLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Chain:
    """The hops, running. `come` are the monotonic seconds at which jobs came out at the far end, in that order."""

    kafka: KafkaAccess
    namespace: str
    come: array[float]

    async def send(self, count: int, rate: float | None) -> tuple[array[float], float]:
        """So many jobs, at this rate or as fast as they go; when each was due, and how many came out in a second.

        Raises StackError when they do not all come.
        """
        ready, before = list(plain(count)), len(self.come)
        sender = Sender(self.kafka, f"{self.namespace}.submissions")
        await sender.start()
        begin_s = monotonic()
        try:
            await sender.send(ready, rate)
            await self.until(before + count)
        finally:
            await sender.stop()
        return sender.due_s, count / (self.come[before + count - 1] - begin_s)

    async def until(self, count: int) -> None:
        """Wait until so many have come."""
        end_s = monotonic() + COME_WAIT_S
        while len(self.come) < count:
            if monotonic() > end_s:
                raise StackError(f"the baseline stands still: {len(self.come)} of {count} came")
            await asyncio.sleep(0.02)


def plain(count: int) -> list[Ready]:
    """Submissions of the load, with a key that says that each is one job."""
    found = jobs(0, count, 1_600, PARTITIONS, wall_ms())
    return [Ready(number % PARTITIONS, b"1", job.value, job.headers) for number, job in enumerate(found)]


def hops(bootstrap: str, namespace: str, traffic: Mapping[str, Flow]) -> list[Hop]:
    """Which client reads and writes what, as the services do."""
    name = {short: f"{namespace}.{short}" for short in ("submissions", "jobs", "nodes", "decisions")}

    def hop(service: str, reads: list[str], counted: str = "", to: str = "", *, is_joined: bool = False) -> Hop:
        flow = traffic[to] if to else Flow(0, 0)
        return Hop(
            service,
            bootstrap,
            {name[short]: PARTITIONS if short == "submissions" else 1 for short in reads},
            name.get(counted, ""),
            name.get(to, ""),
            records=flow.records,
            size_bytes=flow.job_bytes if is_joined else flow.size_bytes,
            is_joined=is_joined,
            headers=list(flow.headers),
        )

    return [
        hop("admission", ["submissions"], "submissions", "jobs"),
        hop("queueing", ["decisions"]),
        hop("placement", ["jobs", "nodes"], "jobs", "decisions", is_joined=True),
        hop("executor", ["decisions"], "decisions", "nodes"),
        hop("projector", ["decisions"]),
        hop("metrics", ["decisions"]),
    ]


@asynccontextmanager
async def chain(servers: Servers, folder: Path, traffic: Mapping[str, Flow]) -> AsyncIterator[Chain]:
    """All hops, each a process of its own, on topics of their own; on secured servers each is the user of the service
    that stands there. Raises StackError, LogUnavailable, ViewUnavailable.
    """
    namespace, cell_file = fresh_namespace(), cell_of(1).cell_file
    await make_declared_topics(servers, declared_topics(cell_file, namespace))
    if servers.security is not None:
        await servers.security.put_in_force(cell_file, namespace)
    children = []
    running = Chain(servers.kafka_access, namespace, array("d"))
    counting = asyncio.create_task(_count(running.kafka, f"{namespace}.decisions", running.come), name="baseline")
    try:
        for hop in hops(servers.kafka.server.address, namespace, traffic):
            argv = [sys.executable, "-P", "-m", "fallow.bench.load.relay", hop.to_json()]
            environment = {**os.environ, **servers.settings_of(hop.name)}
            child = Child(f"relay {hop.name}", argv, folder / "baseline" / f"{hop.name}.log", environment)
            child.start()
            children.append(child)
        await running.send(1, None)
        await asyncio.sleep(SETTLE_S)
        yield running
    finally:
        await end_tasks(counting)
        for child in children:
            child.kill()


async def _count(kafka: KafkaAccess, topic: str, come: array[float]) -> None:
    consumer = AIOKafkaConsumer(
        **client_options(kafka),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    try:
        while True:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                now_s = monotonic()
                for record in batch:
                    come.extend([now_s] * int(record.key))
    finally:
        await consumer.stop()
