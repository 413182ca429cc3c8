"""A cell with many live jobs in its log and in a snapshot, before any service runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from services.cli.bench.job_mix import GPUS_PER_NODE, TENANT, job_id
from services.cli.bench.stages import POOL, cell_of, fresh_namespace
from services.cli.service_set import Clock, ServiceSet, service_set
from services.cli.stage import CLIENT_ID, Servers, write_files
from services.cli.workload import CELL, QUEUE, Workload
from shared.cluster.apply import apply
from shared.cluster.state import CellState
from shared.events import effects as e
from shared.events.decisions import CHAIN_HEADER
from shared.events.values import GPU, JobSpec, NodeStatus, VirtualRun, WorkerPlace
from shared.log.kafka import KafkaLog
from shared.log.layout import Layout
from shared.log.machine.snapshot import Catalogue
from shared.log.machine.writer import Writer
from shared.log.opening import declared_topics, layout_of, log_for
from shared.log.port import Appended, LogUnavailable
from shared.log.snapshots import write_snapshot
from shared.log.topic_admin import create_topics
from shared.runtime.clocks import wall_ms
from shared.runtime.settings import ClockKind

FREE_GPUS = 100
"""Left free, so that a first decision can start jobs."""

EFFECTS_PER_RECORD = 1_000
DIGEST = "0" * 32


@dataclass(frozen=True, slots=True)
class BigCell:
    """Everything that services need to begin, and the log to look at."""

    log: KafkaLog
    layout: Layout
    services: ServiceSet
    folder: Path


@asynccontextmanager
async def big_cell(
    servers: Servers, folder: Path, *, nodes: int, jobs: int, without: tuple[str, ...] = ()
) -> AsyncIterator[BigCell]:
    """So many jobs: as many as there is room for run, the others wait. `without` names services that do not run.

    Raises LogUnavailable, StackError.
    """
    workload, namespace, origin_ms = cell_of(nodes), fresh_namespace(), wall_ms()
    cell_file, nodes_file = write_files(workload, folder)
    kafka = servers.kafka.server.address
    await create_topics(kafka, declared_topics(workload.cell_file, namespace), embedded=False)
    log, layout = log_for(kafka, CLIENT_ID, embedded=False), layout_of(workload.cell_file, namespace)
    await log.start()
    try:
        await _fill(log, layout, workload, jobs)
        services = service_set(
            kafka=kafka,
            redis=servers.redis.server.address,
            namespace=namespace,
            cell_file=cell_file,
            data_dir=folder,
            nodes_file=nodes_file,
            clock=Clock(ClockKind.WALL, origin_ms, 1.0),
            replicas=dict.fromkeys(without, 0),
        )
        yield BigCell(log, layout, services, folder)
    finally:
        await log.stop()


async def _fill(log: KafkaLog, layout: Layout, workload: Workload, jobs: int) -> None:
    """Write the log as a writer does, then a snapshot of where it ends."""
    state = CellState(CELL)
    writer, effects = Writer(state), _effects(workload, jobs)
    while some := list(islice(effects, EFFECTS_PER_RECORD)):
        writer.begin()
        for effect in some:
            apply(state, effect, 0)
        draft = writer.draft(some, {}, 0)
        outgoing = layout.outgoing(
            draft.decision,
            id=f"{CELL}/{draft.decision.version}",
            source=CLIENT_ID,
            wall_ms=wall_ms(),
            more=((CHAIN_HEADER, draft.chain.encode()),),
            value=draft.value,
        )
        answer = await log.append(outgoing)
        if not isinstance(answer, Appended) or not writer.appended(answer.offset):
            raise LogUnavailable(f"the log of the big cell cannot be written: {answer}")
    await write_snapshot(log, layout, state, Catalogue(), writer=CLIENT_ID, wall_ms=wall_ms())


def _effects(workload: Workload, jobs: int) -> Iterator[e.AnyEffect]:
    yield e.WriterStarted(epoch=1, writer=CLIENT_ID)
    for node in workload.nodes:
        yield e.NodeChanged(spec=node, boot="boot-1", status=NodeStatus.READY)
    for number in range(jobs):
        spec = JobSpec(id=job_id(number), tenant=TENANT, queue=QUEUE, cell=CELL, pools=(POOL,), run=VirtualRun())
        yield e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST)
    for number in range(min(jobs, workload.gpus - FREE_GPUS)):
        home = workload.nodes[number // GPUS_PER_NODE].id
        place = WorkerPlace(rank=0, node=home, devices=(number % GPUS_PER_NODE,), gpu_milli=GPU)
        yield e.JobStarted(job=job_id(number), attempt=1, workers=(place,))
        yield e.JobRunning(job=job_id(number), attempt=1)
