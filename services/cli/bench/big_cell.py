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
from shared.events.values import GPU, JobSpec, NodeStatus, WorkerPlace
from shared.log.kafka import KafkaLog
from shared.log.layout import Layout
from shared.log.machine.snapshot import Catalogue
from shared.log.machine.writer import Draft, Writer
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
    """Everything that services need to begin, the log to look at, and the version at which it ends."""

    log: KafkaLog
    layout: Layout
    services: ServiceSet
    folder: Path
    version: int


@dataclass(frozen=True, slots=True)
class Live:
    """So many jobs live: of one worker each, and behind them gangs of so many workers; a worker takes one GPU."""

    singles: int
    gangs: int = 0
    gang_workers: int = 1

    @property
    def jobs(self) -> int:
        """Jobs of both sorts."""
        return self.singles + self.gangs

    @property
    def workers(self) -> int:
        """The workers of all of them."""
        return self.singles + self.gangs * self.gang_workers

    def workers_of(self, number: int) -> int:
        """The workers of one job."""
        return 1 if number < self.singles else self.gang_workers


@asynccontextmanager
async def big_cell(
    servers: Servers, folder: Path, *, nodes: int, live: Live, without: tuple[str, ...] = ()
) -> AsyncIterator[BigCell]:
    """So many live jobs: as many as there is room for run, the others wait. `without` names services that do not run.

    Raises LogUnavailable, StackError.
    """
    workload, namespace, origin_ms = cell_of(nodes), fresh_namespace(), wall_ms()
    cell_file, nodes_file = write_files(workload, folder)
    kafka = servers.kafka.server.address
    await create_topics(kafka, declared_topics(workload.cell_file, namespace), embedded=False)
    log, layout = log_for(kafka, CLIENT_ID, embedded=False), layout_of(workload.cell_file, namespace)
    await log.start()
    try:
        version = await _fill(log, layout, workload, live)
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
        yield BigCell(log, layout, services, folder, version)
    finally:
        await log.stop()


async def _fill(log: KafkaLog, layout: Layout, workload: Workload, live: Live) -> int:
    """Write the log as a writer does, then a snapshot of where it ends. The version there."""
    state = CellState(CELL)
    writer, effects = Writer(state), _effects(workload, live)
    while some := list(islice(effects, EFFECTS_PER_RECORD)):
        writer.begin()
        for effect in some:
            apply(state, effect, 0)
        draft = writer.draft(some, {}, 0)
        assert isinstance(draft, Draft), draft
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
    return state.version


def _effects(workload: Workload, live: Live) -> Iterator[e.AnyEffect]:
    yield e.WriterStarted(epoch=1, writer=CLIENT_ID)
    for node in workload.nodes:
        yield e.NodeChanged(spec=node, boot="boot-1", status=NodeStatus.READY)
    for number in range(live.jobs):
        workers = live.workers_of(number)
        yield e.JobEnqueued(
            spec=JobSpec(id=job_id(number), tenant=TENANT, queue=QUEUE, cell=CELL, pools=(POOL,), workers=workers),
            submit_ms=0,
            digest=DIGEST,
        )
    used, room = 0, workload.gpus - FREE_GPUS
    for number in range(live.jobs):
        workers = live.workers_of(number)
        if used + workers > room:
            return
        yield e.JobStarted(job=job_id(number), attempt=1, workers=tuple(_places(workload, used, workers)))
        yield e.JobRunning(job=job_id(number), attempt=1)
        used += workers


def _places(workload: Workload, first: int, workers: int) -> Iterator[WorkerPlace]:
    """The GPUs from the `first` of the cell on, one for each worker."""
    for rank in range(workers):
        node, device = divmod(first + rank, GPUS_PER_NODE)
        yield WorkerPlace(rank=rank, node=workload.nodes[node].id, devices=(device,), gpu_milli=GPU)
