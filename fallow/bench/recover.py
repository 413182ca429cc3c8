"""`fallow bench recover`: with many live jobs, the writer is killed, and then the view is flushed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from redis.asyncio import Redis
from rich.console import Console

from fallow.bench.figure import NO_EXECUTOR, Figure
from fallow.bench.load.big_cell import BigCell, Live, big_cell
from fallow.bench.load.job_mix import GPUS_PER_NODE, TENANT
from fallow.bench.load.processor_time import ProcessorTime, Used
from fallow.bench.load.sender import Sender
from fallow.bench.load.stages import SPARE, is_durable, servers_for
from fallow.bench.real.mix import ready
from fallow.local.local_cell import Servers
from fallow.replay.workload import CELL, QUEUE
from fallow.shared.events.decisions import Decision
from fallow.shared.events.effects import AnyEffect, JobStarted, WriterStarted
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import JobSpec
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.kafka.groups.group_timers import QUICK
from fallow.shared.log.port import Reader
from fallow.shared.log.reading import event_of
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.process import loop_factory
from fallow.shared.runtime.stack.child import StackError
from fallow.shared.runtime.stack.services import Services, ServiceSpec
from fallow.shared.view.reader import NoSuchCell, ViewBehind, ViewReader, ViewRebuilding
from fallow.shared.view.redis_view import RedisFunctions
from fallow.shared.view.store import ViewUnavailable

WITHOUT = ("executor",)
"""No node says anything: what the reports of a whole cell cost a new writer is not in the figure."""

SPARE_NODES, COMING_PER_S, COMING = 100, 50, "come-"
"""Jobs come, so many in a second, for nodes that are free for them alone: as soon as a writer is there, one can start.
"""

STANDBY = ServiceSpec("placement-standby", "fallow.services.placement")
READY_WAIT_S, WAIT_S = 180.0, 120.0
SETTLE_S = 5.0
SESSION_S = QUICK.session_ms / 1000
LOOK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class Recovered:
    """Seconds from the kill to the next writer's first record and to the next job that is started, and from the flush
    to the whole view. `refusals` are the readers that were told that it is being built; `halves` those that were shown
    less than all.
    """

    writer_s: float
    takeover_s: float
    rebuild_s: float
    refusals: int
    halves: int
    used: Used
    durable: bool


def recover(console: Console, *, nodes: int, jobs: int, durable: bool) -> Figure:
    """Run it. Raises StackError, LogUnavailable."""
    with servers_for(console, durable=durable) as (servers, folder):

        async def work() -> Recovered:
            console.print(f"writing {nodes} nodes and {jobs} jobs", highlight=False)
            live = Live(jobs)
            async with big_cell(servers, folder, nodes=nodes, live=live, without=WITHOUT, spare=SPARE_NODES) as cell:
                return await _recovered(cell, servers, jobs, console)

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(work())
    body: dict[str, object] = {
        "takeover_s": round(found.takeover_s, 2),
        "writer_s": round(found.writer_s, 2),
        "rebuild_s": round(found.rebuild_s, 2),
        "view_refusals": found.refusals,
        "view_halves": found.halves,
        "baseline": SESSION_S,
        "nodes": nodes,
        "jobs": jobs,
        "without": list(WITHOUT),
    }
    return Figure("recover", lines_of(found, jobs), body, found.used, found.durable)


def lines_of(found: Recovered, jobs: int) -> list[str]:
    """What people are told."""
    return [
        f"{found.takeover_s:.2f} s from the kill of the writer to the next start of a job, with {jobs} live jobs",
        f"{found.writer_s:.2f} s to the first record of the next writer",
        f"baseline {SESSION_S:.1f} s: the session timeout of a group's member: a lost one is noticed no sooner",
        (
            f"{found.rebuild_s:.2f} s from the flush of Redis to the whole view; meanwhile {found.refusals} readers "
            f"were told to wait, {found.halves} were shown a part"
        ),
        NO_EXECUTOR,
    ]


async def _recovered(cell: BigCell, servers: Servers, jobs: int, console: Console) -> Recovered:
    tp = cell.layout.tp("decisions", CELL)
    reader = cell.log.reader({tp: (await cell.log.end_offsets([tp]))[tp]})
    await reader.start()
    specs = (*cell.services.specs, STANDBY)
    services = Services(specs, environment=cell.services.environment, run_dir=cell.folder / "logs")
    view = RedisFunctions(servers.redis.server.address)
    try:
        await services.start()
        writer = await _writer(reader)
        await services.wait_ready(wait_s=READY_WAIT_S)
        await _whole(ViewReader(view, cell.layout.namespace), jobs)
        await asyncio.sleep(SETTLE_S)
        watch = ProcessorTime({name: services.pid(name) for name in services.names})
        async with _jobs_come(cell, servers) as come:
            await _start(reader)
            console.print(f"killing {writer}", highlight=False)
            begin_s = monotonic()
            services.kill(writer, signal.SIGKILL)
            writer_s, takeover_s = await _taken_over(reader, writer, begin_s)
        await _whole(ViewReader(view, cell.layout.namespace), jobs + len(come))
        console.print("flushing Redis", highlight=False)
        begin_s = monotonic()
        await _flush(servers.redis.server.address)
        refusals, halves = await _whole(ViewReader(view, cell.layout.namespace), jobs + len(come))
        rebuild_s, used = monotonic() - begin_s, watch.used()
        durable = await is_durable(servers, cell.layout)
        return Recovered(writer_s, takeover_s, rebuild_s, refusals, halves, used, durable)
    finally:
        await services.stop()
        await view.stop()
        await reader.stop()


@asynccontextmanager
async def _jobs_come(cell: BigCell, servers: Servers) -> AsyncIterator[list[str]]:
    """Send jobs for the spare nodes, one by one, until the end. Their ids."""
    topic, come, is_over = cell.layout.topic("submissions"), list[str](), asyncio.Event()
    partitions, sender = await cell.log.partitions(topic), Sender(servers.kafka.server.address, topic)

    async def send() -> None:
        while not is_over.is_set() and len(come) < SPARE_NODES * GPUS_PER_NODE:
            spec = JobSpec(id=f"{COMING}{len(come):04}", tenant=TENANT, queue=QUEUE, cell=CELL, pools=(SPARE,))
            await sender.send([ready(SubmitJob(job=spec), f"bench/{spec.id}", partitions, wall_ms())], None)
            come.append(spec.id)
            await asyncio.sleep(1 / COMING_PER_S)

    await sender.start()
    sending = asyncio.create_task(send(), name="sender")
    try:
        yield come
    finally:
        is_over.set()
        await sending
        await sender.stop()


async def _effects(reader: Reader) -> AsyncIterator[AnyEffect]:
    """What is decided from now on, until WAIT_S are over."""
    end_s = monotonic() + WAIT_S
    while monotonic() < end_s:
        for record in await reader.poll(wait_ms=20):
            decision = event_of(record)
            if isinstance(decision, Decision):
                for effect in decision.effects:
                    yield effect


async def _writer(reader: Reader) -> str:
    """The next process that takes the log over."""
    async for effect in _effects(reader):
        if isinstance(effect, WriterStarted):
            return effect.writer
    raise StackError(f"no process took the log over within {WAIT_S:.0f} s")


async def _start(reader: Reader) -> None:
    """Wait until one of the jobs that come is started."""
    async for effect in _effects(reader):
        if _is_start(effect):
            return
    raise StackError(f"no job that came was started within {WAIT_S:.0f} s")


async def _taken_over(reader: Reader, killed: str, begin_s: float) -> tuple[float, float]:
    """Seconds since then until another process than this one writes, and until it starts a job that came."""
    writer_s = None
    async for effect in _effects(reader):
        if isinstance(effect, WriterStarted) and effect.writer != killed:
            writer_s = monotonic() - begin_s
        elif writer_s is not None and _is_start(effect):
            return writer_s, monotonic() - begin_s
    raise StackError(f"no process took the log over and started a job within {WAIT_S:.0f} s")


def _is_start(effect: AnyEffect) -> bool:
    return isinstance(effect, JobStarted) and own_id(effect.job).startswith(COMING)


async def _whole(reader: ViewReader, jobs: int) -> tuple[int, int]:
    """Wait until the view shows all jobs; how often it was not ready meanwhile, and how often it showed fewer."""
    refusals, halves, end_s = 0, 0, monotonic() + WAIT_S
    while monotonic() < end_s:
        try:
            shown = sum((await reader.summary(CELL)).value.jobs.values())
        except (NoSuchCell, ViewRebuilding, ViewBehind, ViewUnavailable):
            refusals += 1
            await asyncio.sleep(LOOK_AGAIN_S)
            continue
        if shown == jobs:
            return refusals, halves
        halves += 1
    raise StackError(f"the view was not whole within {WAIT_S:.0f} s")


async def _flush(address: str) -> None:
    redis = Redis.from_url(address)
    await redis.flushall()
    await redis.aclose()
