"""A cell with many live jobs in its log and in a snapshot, and decisions behind that, before any service runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fallow.bench.load.job_mix import GPUS_PER_NODE, TENANT, job_id
from fallow.bench.load.stages import POOL, cell_of, fresh_namespace
from fallow.local.local_cell import CLIENT_ID, Servers, write_files
from fallow.local.service_set import Clock, ServiceSet, service_set
from fallow.replay.workload import CELL, QUEUE, Workload
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import CHAIN_HEADER
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus, WorkerPlace
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.machine.snapshot import Catalogue
from fallow.shared.log.machine.writer import Draft, Writer
from fallow.shared.log.opening import declared_topics, layout_of, log_for
from fallow.shared.log.port import Appended, LogUnavailable
from fallow.shared.log.snapshots import write_snapshot
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.settings import ClockKind

FREE_GPUS = 100
"""Left free, so that a first decision can start jobs."""

EFFECTS_PER_RECORD = 1_000
DIGEST = "0" * 32


@dataclass(frozen=True, slots=True)
class BigCell:
    """Everything that services need to begin, the log to look at, the version at which it ends, and how many records of
    it are behind the snapshot.
    """

    log: KafkaLog
    layout: Layout
    services: ServiceSet
    folder: Path
    version: int
    tail: int


@dataclass(frozen=True, slots=True)
class Live:
    """So many jobs live: of one worker each, and behind them gangs of so many workers; a worker takes one GPU. `past`
    more came, ran and were over behind the snapshot.
    """

    singles: int
    gangs: int = 0
    gang_workers: int = 1
    past: int = 0

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
    servers: Servers, folder: Path, *, nodes: int, live: Live, without: tuple[str, ...] = (), spare: int = 0
) -> AsyncIterator[BigCell]:
    """So many live jobs: as many as there is room for run, the others wait. `without` names services that do not run.
    There are `spare` more nodes, of a pool of their own, which these jobs do not accept.

    Raises LogUnavailable, StackError.
    """
    workload, namespace, origin_ms = cell_of(nodes, spare=spare), fresh_namespace(), wall_ms()
    cell_file, nodes_file = write_files(workload, folder)
    kafka = servers.kafka.server.address
    await create_topics(kafka, declared_topics(workload.cell_file, namespace), embedded=False)
    log, layout = log_for(kafka, CLIENT_ID, embedded=False), layout_of(workload.cell_file, namespace)
    await log.start()
    try:
        snapshot, version = await _fill(log, layout, workload, live)
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
        yield BigCell(log, layout, services, folder, version, version - snapshot)
    finally:
        await log.stop()


async def _fill(log: KafkaLog, layout: Layout, workload: Workload, live: Live) -> tuple[int, int]:
    """Write the log as a writer does, a snapshot of the live jobs, and what came behind it. The versions of both."""
    state = CellState(CELL)
    await _write(log, layout, Writer(state), before_snapshot(workload, live))
    await write_snapshot(log, layout, state, Catalogue(), writer=CLIENT_ID, wall_ms=wall_ms())
    snapshot = state.version
    await _write(log, layout, Writer(state), behind_snapshot(workload, live))
    return snapshot, state.version


async def _write(log: KafkaLog, layout: Layout, writer: Writer, effects: Iterator[e.AnyEffect]) -> None:
    while some := list(islice(effects, EFFECTS_PER_RECORD)):
        writer.begin()
        for effect in some:
            apply(writer.state, effect, 0)
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


def before_snapshot(workload: Workload, live: Live) -> Iterator[e.AnyEffect]:
    """The nodes and the live jobs."""
    yield e.WriterStarted(epoch=1, writer=CLIENT_ID)
    for node in workload.nodes:
        yield e.NodeChanged(spec=node, boot="boot-1", status=NodeStatus.READY)
    for number in range(live.jobs):
        workers = live.workers_of(number)
        yield _enqueued(number, workers)
    used, room = 0, _gpus(workload) - FREE_GPUS
    for number in range(live.jobs):
        workers = live.workers_of(number)
        if used + workers > room:
            return
        yield e.JobStarted(job=_job(number), attempt=1, workers=tuple(_places(workload, used, workers)))
        yield e.JobRunning(job=_job(number), attempt=1)
        used += workers


def behind_snapshot(workload: Workload, live: Live) -> Iterator[e.AnyEffect]:
    """The lives of jobs that took what was left free, one GPU after the other."""
    free = _gpus(workload) - FREE_GPUS
    for number in range(live.past):
        job = _job(live.jobs + number)
        yield _enqueued(live.jobs + number, 1)
        yield e.JobStarted(job=job, attempt=1, workers=tuple(_places(workload, free + number % FREE_GPUS, 1)))
        yield e.JobRunning(job=job, attempt=1)
        yield e.JobFinished(job=job, attempt=1)


def _job(number: int) -> str:
    return full_id(TENANT, job_id(number))


def _enqueued(number: int, workers: int) -> e.JobEnqueued:
    spec = JobSpec(id=_job(number), tenant=TENANT, queue=QUEUE, cell=CELL, pools=(POOL,), workers=workers)
    return e.JobEnqueued(spec=spec, submit_ms=0, digest=DIGEST)


def _gpus(workload: Workload) -> int:
    """Those that the jobs accept, which come first."""
    return sum(node.gpus for node in workload.nodes if node.pool == POOL)


def _places(workload: Workload, first: int, workers: int) -> Iterator[WorkerPlace]:
    """The GPUs from the `first` of the cell on, one for each worker."""
    for rank in range(workers):
        node, device = divmod(first + rank, GPUS_PER_NODE)
        yield WorkerPlace(rank=rank, node=workload.nodes[node].id, devices=(device,), gpu_milli=GPU)
