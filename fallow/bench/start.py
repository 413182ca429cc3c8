"""`fallow bench start`: a cold start with many live jobs, from the first process to the first job that is started."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition
from rich.console import Console

from fallow.bench.figure import NO_EXECUTOR, Figure
from fallow.bench.load.big_cell import BigCell, Live, big_cell
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.stages import is_durable, servers_for
from fallow.local.local_cell import Servers
from fallow.replay.workload import CELL
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.services import Services

START_WAIT_S = 120.0
WITHOUT = ("executor",)
"""Measured is how long the log is read until something is decided. No node says anything meanwhile: what executors
load, and what their first reports cost, is not in the figure.
"""


@dataclass(frozen=True, slots=True)
class Started:
    """Seconds since the processes were started: to the writer's record, and to the first record that starts a job.
    `read_s` is what it takes to read the same snapshot with bare aiokafka. `tail` records stood behind it.
    """

    writer_s: float
    job_s: float
    read_s: float
    bytes: int
    tail: int
    used: Used
    durable: bool


PAST = 25_000
"""Jobs that came and went behind the snapshot: 100,000 effects are read behind it, the last of some minutes."""

VOLCANO_NODES, VOLCANO_JOBS = 4_888, Live(79_196, 7_835, 9, past=PAST)
"""As large as the cluster of volcano#5819: 4,888 ready nodes and 87,031 jobs in its first snapshot, and 149,711 events
that added pods, of about 140,000 pods. Here they are as many workers, and since nothing is told of sizes, gangs are of
nine.
"""

VOLCANO_S, VOLCANO_WAIT_S, VOLCANO_LEASE_S = 497.0, 445.0, 17.6
"""What is told of one run of Volcano there, all about: from the start of its process to the bind of one pod, which was
created behind that start and came too late for the first session; from that pod's creation to its bind; and how much of
the first waited for leadership, mostly for the lease of the leader before.
"""


def start(console: Console, *, nodes: int, live: Live, durable: bool) -> Figure:
    """Run it. Raises StackError, LogUnavailable."""
    found = _run(console, nodes, live, durable=durable)
    return Figure("start", lines_of(found, nodes, live), _body(found, nodes, live), found.used, found.durable)


def volcano_start(console: Console, *, durable: bool) -> Figure:
    """The start of a cell with a cluster as large as one on which Volcano was reported to begin slowly. Raises
    StackError, LogUnavailable.
    """
    found = _run(console, VOLCANO_NODES, VOLCANO_JOBS, durable=durable)
    lines = [
        *lines_of(found, VOLCANO_NODES, VOLCANO_JOBS),
        (
            f"Volcano in a cluster as large: about {VOLCANO_S:.0f} s from the start of its process to the bind of a "
            f"pod that came {VOLCANO_S - VOLCANO_WAIT_S:.0f} s behind that; {VOLCANO_LEASE_S:.1f} s went to the "
            "election of its leader"
        ),
    ]
    body = {
        **_body(found, VOLCANO_NODES, VOLCANO_JOBS),
        "workers": VOLCANO_JOBS.workers,
        "volcano_s": VOLCANO_S,
        "volcano_wait_s": VOLCANO_WAIT_S,
        "volcano_lease_s": VOLCANO_LEASE_S,
    }
    return Figure("z1", lines, body, found.used, found.durable)


def _run(console: Console, nodes: int, live: Live, *, durable: bool) -> Started:
    with servers_for(console, durable=durable) as (servers, folder):

        async def work() -> Started:
            console.print(f"writing {nodes} nodes and {live.jobs} jobs", highlight=False)
            async with big_cell(servers, folder, nodes=nodes, live=live, without=WITHOUT) as cell:
                read_s, size = await _read_snapshot(servers, cell)
                console.print("starting", highlight=False)
                return await _started(cell, read_s, size, durable=await is_durable(servers, cell.layout))

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work())


def lines_of(found: Started, nodes: int, live: Live) -> list[str]:
    """What people are told."""
    return [
        f"{found.job_s:.2f} s to the first job that is started, with {nodes} nodes and {live.jobs} live jobs",
        f"{found.writer_s:.2f} s to the writer's first record, which extends all there was before",
        f"baseline {found.read_s:.2f} s: the snapshot's {found.bytes / 1e6:.1f} MB read by bare aiokafka",
        f"behind the snapshot {found.tail} records were folded, of {live.past} jobs that came and went",
        NO_EXECUTOR,
    ]


def _body(found: Started, nodes: int, live: Live) -> dict[str, object]:
    return {
        "first_decision_s": round(found.job_s, 2),
        "writer_s": round(found.writer_s, 2),
        "baseline": round(found.read_s, 2),
        "snapshot_mb": round(found.bytes / 1e6, 1),
        "tail_records": found.tail,
        "tail_jobs": live.past,
        "nodes": nodes,
        "jobs": live.jobs,
        "without": list(WITHOUT),
    }


async def _started(cell: BigCell, read_s: float, size: int, *, durable: bool) -> Started:
    tp = cell.layout.tp("decisions", CELL)
    reader = cell.log.reader({tp: (await cell.log.end_offsets([tp]))[tp]})
    await reader.start()
    services = Services(cell.services.specs, environment=cell.services.environment, run_dir=cell.folder / "logs")
    try:
        begin_s = monotonic()
        await services.start()
        watch = ProcessorTime({name: services.pid(name) for name in services.names})
        writer_s = 0.0
        while monotonic() - begin_s < START_WAIT_S:
            for record in await reader.poll():
                decision = json.loads(record.value or b"{}")
                if not writer_s and decision["version"] != cell.version + 1:
                    raise StackError(f"version {decision['version']} was decided before {cell.version} was loaded")
                writer_s = writer_s or monotonic() - begin_s
                if any(effect["kind"] == "JobStarted" for effect in decision["effects"]):
                    return Started(writer_s, monotonic() - begin_s, read_s, size, cell.tail, watch.used(), durable)
        raise StackError(f"no job was started within {START_WAIT_S:.0f} s")
    finally:
        await services.stop()
        await reader.stop()


async def _read_snapshot(servers: Servers, cell: BigCell) -> tuple[float, int]:
    """Seconds and bytes of the whole partition of snapshots."""
    topic, number = cell.layout.tp("snapshots", CELL)
    end = (await cell.log.end_offsets([(topic, number)]))[topic, number]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers.kafka.server.address,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    begin_s, size, next_offset = monotonic(), 0, 0
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number)])
        while next_offset < end:
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                size += sum(len(record.value or b"") for record in batch)
                next_offset = batch[-1].offset + 1
    finally:
        await consumer.stop()
    return monotonic() - begin_s, size
