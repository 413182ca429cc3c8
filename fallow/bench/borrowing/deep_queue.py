"""`fallow bench l1`: how long a job that fits waits behind hundreds that do not, on a running cell.

The shape of kueue#14477: 1,300 nodes and one queue of 536 jobs with fair sharing and topology, in which the median job
waited for 64 minutes. Here the queue goes by the shares of eight tenants, the cluster is full but for one node in each
of 65 leaf groups, and the 536 are gangs that need a whole leaf group each: they are ahead of all others of their
tenants and can never start. Small jobs come meanwhile, for which the free nodes have room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.arrivals import NEVER, Arrivals, told_by
from fallow.bench.load.job_mix import GPUS_PER_NODE, Ready, job_id
from fallow.bench.load.load import nodes_joined, percentile, pids_of
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import Sender
from fallow.bench.load.stages import on_stage
from fallow.local.local_cell import LocalCell, Servers
from fallow.replay.workload import CELL, NODES_PER_LEAF, QUEUE, Workload, pools_of, uniform_nodes
from fallow.shared.cluster.model.config import CellFile, CellPart, Queue, Tenant
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Resources, TopologyRequest, VirtualRun, Wish
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.machine.partitioner import partition_of
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.stack.child import StackError

NODES, DEEP = 1_300, 536
EVERY_NODES = 2 * NODES_PER_LEAF + 4
"""One node of so many is free: never two of one leaf group."""

SHORT_MS = 4_000
FITTING_PER_S, FITTING_S = 20, 60
FITTING_RUN_MS = 2_000
TENANTS = tuple(f"team-{number}" for number in range(8))
STILL_S, WAIT_S, LOOK_AGAIN_S = 3.0, 120.0, 0.1
KUEUE_P50_S = 64 * 60.0


@dataclass(frozen=True, slots=True)
class Waited:
    """How long each of the fitting jobs waited, in seconds, in order of size; never is infinite. `deep` jobs waited all
    the time.
    """

    waits_s: list[float]
    deep: int
    used: Used


def deep_queue(console: Console, *, durable: bool) -> Figure:
    """Run it. Raises StackError, LogUnavailable, LogOverflowed."""

    async def work(stage: LocalCell) -> Waited:
        console.print(f"waiting for {NODES} nodes", highlight=False)
        await nodes_joined(stage, NODES)
        return await waited(stage, console)

    async def nothing(_: Waited, _servers: Servers, _folder: Path) -> None:
        return None

    staged = on_stage(console, cell_of(), work, nothing, durable=durable)
    found = staged.answer
    p50, p90, p99 = (_seconds(found, percent) for percent in (50, 90, 99))
    lines = [
        f"a job that fits waited p50 {p50} s, p90 {p90} s, p99 {p99} s behind {found.deep} that do not",
        f"Kueue in production, all jobs of a queue as deep: p50 {KUEUE_P50_S:.0f} s",
    ]
    body: dict[str, object] = {
        "wait_s_p50": p50,
        "wait_s_p90": p90,
        "wait_s_p99": p99,
        "queue_depth": found.deep,
        "fitting_jobs": len(found.waits_s),
        "nodes": NODES,
        "baseline": KUEUE_P50_S,
    }
    return Figure("l1", lines, body, found.used, staged.durable)


def _seconds(found: Waited, percent: int) -> float | None:
    told = percentile([wait_s * 1000 for wait_s in found.waits_s], percent)
    return None if told is None else round(told / 1000, 3)


def cell_of() -> Workload:
    """The cell, without a job."""
    nodes = uniform_nodes(NODES, GPUS_PER_NODE, pool="bench")
    queues = (Queue(name=QUEUE, discipline=QueueDiscipline.BEST_EFFORT_FIFO, order=QueueOrder.FAIR_SHARE),)
    cell = CellPart(name=CELL, ordinal=0, pools=pools_of(nodes), queues=queues)
    tenants = tuple(Tenant(name=name) for name in TENANTS)
    return Workload((), tuple(nodes), CellFile(cells=(cell,), tenants=tenants))


def specs() -> tuple[list[JobSpec], list[JobSpec], list[JobSpec]]:
    """The jobs that fill the cluster, those that can never start, and those that fit. Numbers run through all."""
    whole = Resources(gpu_milli=GPUS_PER_NODE * GPU)
    fill = [
        JobSpec(
            id=job_id(number),
            tenant=TENANTS[number % len(TENANTS)],
            resources=whole,
            run=VirtualRun(duration_ms=SHORT_MS if number % EVERY_NODES == 0 else None),
        )
        for number in range(NODES)
    ]
    leaf = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
    stuck = [
        JobSpec(
            id=job_id(number),
            tenant=TENANTS[number % len(TENANTS)],
            priority=10,
            workers=NODES_PER_LEAF,
            resources=whole,
            topology=leaf,
        )
        for number in range(NODES, NODES + DEEP)
    ]
    chance = Random(1)  # noqa: S311 - a load, not a secret
    first = NODES + DEEP
    fitting = [
        JobSpec(
            id=job_id(number),
            tenant=chance.choice(TENANTS),
            resources=Resources(gpu_milli=chance.choice((1, 1, 2, 4)) * GPU),
            run=VirtualRun(duration_ms=FITTING_RUN_MS),
        )
        for number in range(first, first + FITTING_PER_S * FITTING_S)
    ]
    return fill, stuck, fitting


async def waited(stage: LocalCell, console: Console) -> Waited:
    """Fill the cluster, let the queue grow deep, and send what fits."""
    topic = stage.layout.topic("submissions")
    partitions = await stage.log.partitions(topic)
    fill, stuck, fitting = ([_ready(spec, partitions) for spec in some] for some in specs())
    sender = Sender(stage.servers.kafka_access, topic)
    arrivals = Arrivals(stage.log, stage.layout.tp("decisions", CELL))
    await sender.start()
    try:
        await arrivals.start()
        for some in (fill, stuck):
            console.print(f"{len(some)} jobs", highlight=False)
            await sender.send(some, None)
            await _still(arrivals)
        watch = ProcessorTime(pids_of(stage))
        console.print(f"{len(fitting)} jobs that fit, {FITTING_PER_S} in a second", highlight=False)
        await sender.send(fitting, FITTING_PER_S)
        used = watch.used()
        await _still(arrivals)
    finally:
        await arrivals.stop()
        await sender.stop()
    told = await told_by(arrivals, stage.log, len(sender.due_s))
    started = list(told.started_s)
    behind = len(fill) + len(stuck)
    deep = started[len(fill) : behind].count(NEVER)
    if NEVER in started[: len(fill)] or deep < DEEP:
        raise StackError(f"the queue is {deep} deep and not {DEEP}, or the cluster was not full")
    return Waited(sorted(_waits(list(sender.due_s)[behind:], started[behind:])), deep, used)


def _waits(due_s: Iterable[float], started_s: Iterable[float]) -> Iterable[float]:
    for due, started in zip(due_s, started_s, strict=True):
        yield float("inf") if started == NEVER else started - due


def _ready(spec: JobSpec, partitions: int) -> Ready:
    event = SubmitJob(job=spec)
    key = event.key().encode()
    headers = list(ce_headers(event, id=f"bench/{spec.id}", source="fallow-bench", wall_ms=wall_ms()))
    return Ready(partition_of(key, partitions), key, encode(event), headers)


async def _still(arrivals: Arrivals) -> None:
    """Until the log has stood still for longer than the jobs that make room run."""
    begin_s = since_s = monotonic()
    seen = -1
    while monotonic() - begin_s < WAIT_S and monotonic() - since_s < STILL_S + SHORT_MS / 1000:
        if len(arrivals.at_s) != seen:
            seen, since_s = len(arrivals.at_s), monotonic()
        await asyncio.sleep(LOOK_AGAIN_S)
