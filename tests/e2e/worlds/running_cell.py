"""A whole cell of real processes on a real Kafka and a real Redis, and what a test asks of it.

What happened is read from the log, never from a counter of ours.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fallow.cli.verify.verification import forgotten_version, read_diaries
from fallow.local.service_set import service_set
from fallow.shared.cluster.checks.audit import Ledger
from fallow.shared.cluster.checks.invariants import Offence, check_state
from fallow.shared.cluster.checks.run_journal import DiaryLine, Orders, check_diaries
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.job_ids import full_id
from fallow.shared.events.fields.value import build_valid, plain
from fallow.shared.events.fields.values import JobSpec, NodeSpec, Resources, VirtualRun
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.admin.topic_admin import create_topics
from fallow.shared.log.follower import Follower
from fallow.shared.log.kafka.log import KafkaLog
from fallow.shared.log.layout import Layout
from fallow.shared.log.opening import declared_topics, layout_of
from fallow.shared.runtime.clocks import wall_ms
from fallow.shared.runtime.files.cell_file import load_cell_file
from fallow.shared.runtime.kafka_access import KafkaAccess
from fallow.shared.runtime.stack.services import Services, ServiceSpec

CELL = "main"
CELL_FILE = """
cells:
  - name: main
    ordinal: 0
    pools: [{name: training, gpus: 1024, gpus_per_node: 8}]
    queues: [{name: default, discipline: best-effort-fifo}]
    policy: {node_lease_wall_ms: 60000}
tenants:
  - {name: vision}
  - {name: speech}
"""


@dataclass
class RunningCell:
    """Handles onto one running cell."""

    services: Services
    log: KafkaLog
    layout: Layout
    follower: Follower
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    orders: Orders = field(default_factory=Orders)
    decisions: list[Decision] = field(default_factory=list)
    offences: list[Offence] = field(default_factory=list)

    @property
    def state(self) -> CellState:
        return self.follower.state

    async def publish(self, *events: Event) -> None:
        outgoing = [self.layout.outgoing(e, id=f"test/{id(e)}", source="test", wall_ms=wall_ms()) for e in events]
        await self.log.publish(outgoing)

    async def submit(self, *specs: JobSpec) -> None:
        await self.publish(*(SubmitJob(job=spec) for spec in specs))

    async def poll(self) -> list[Decision]:
        decisions = await self.follower.poll(wait_ms=100)
        for decision in decisions:
            offence = self.ledger.take(decision)
            self.offences += [offence] if offence else []
            self.orders.take(decision)
        self.decisions += decisions
        return decisions

    async def until(self, holds: Callable[[RunningCell], bool], *, what: str, wait_s: float = 30.0) -> float:
        """Fold until this holds; how long that took. A service that ends by itself fails the test at once."""
        begin = time.monotonic()
        ended = asyncio.create_task(self.services.ended())
        try:
            while not holds(self):
                await self.poll()
                if ended.done():
                    raise AssertionError(f"while waiting for {what}: {ended.result()}")
                if time.monotonic() - begin > wait_s:
                    live = {job.id: str(job.status) for job in list(self.state.jobs.values())[:10]}
                    raise AssertionError(f"not within {wait_s:.0f} s: {what}; live: {live}")
        finally:
            ended.cancel()
        return time.monotonic() - begin

    async def until_over(self, *jobs: str, wait_s: float = 30.0) -> float:
        """Fold until all of these are over, each named as a tenant may name it."""
        wanted = [in_full(job) for job in jobs]
        return await self.until(
            lambda c: all(job in c.state.finished for job in wanted), what=f"the end of {jobs}", wait_s=wait_s
        )

    def story(self, job: str) -> list[str]:
        """The kinds of this job's effects, in their order; the job is named as a tenant may name it."""
        named = in_full(job)
        return [effect.kind for decision in self.decisions for effect in decision.effects if _is_about(effect, named)]

    def diary(self) -> list[DiaryLine]:
        """Every node's diary, in the order in which it was written: the virtual nodes' and those of agents."""
        return [line for folder in self._diaries() for line in read_diaries(folder)]

    def forgotten_version(self) -> int:
        """Up to which version the diaries need not tell of a run: a long one is shortened."""
        return max((forgotten_version(folder, CELL) for folder in self._diaries()), default=0)

    def _diaries(self) -> list[Path]:
        return sorted(self.folder.glob("*/diaries"))

    def problems(self) -> list[Offence]:
        """Everything that is wrong with the log, the state and the diaries."""
        final = self.ledger.compare(self.state)
        return [
            *self.offences,
            *check_state(self.state),
            *([final] if final else []),
            *check_diaries(self.orders, self.diary(), self.forgotten_version()),
        ]


def in_full(job: str) -> str:
    """The job in full: by its id alone it is one of vision's, whose `a_job` makes them."""
    return full_id("vision", job)


def _is_about(effect: object, job: str) -> bool:
    spec = getattr(effect, "spec", None)
    return getattr(effect, "job", None) == job or (isinstance(spec, JobSpec) and spec.id == job)


def a_job(
    id: str, *, workers: int = 1, gpus: int = 1, ms: int | None = 200, tenant: str = "vision", **more: object
) -> JobSpec:
    run = more.pop("run", VirtualRun(duration_ms=ms))
    wants = Resources(gpu_milli=gpus * 1000)
    return build_valid(JobSpec, id=id, tenant=tenant, workers=workers, resources=wants, run=run, **more)


@asynccontextmanager
async def running_cell(
    kafka: str,
    redis: str,
    namespace: str,
    folder: Path,
    *,
    nodes: int = 4,
    replicas: Mapping[str, int] | None = None,
    cell_file: str = CELL_FILE,
    more: Mapping[str, str] | None = None,
    beside: Sequence[ServiceSpec] = (),
    begins_at_0: bool = True,
    copies: int = 1,
    admin: KafkaAccess | None = None,
    own: Callable[[str], Mapping[str, str]] = lambda _: {},
) -> AsyncIterator[RunningCell]:
    """`copies` of each topic are kept, on as many brokers. `admin` is who makes topics and looks on, where Kafka asks
    for a user; `own` gives a service settings of its own, by its name.
    """
    (folder / "cell.yaml").write_text(cell_file)
    file = load_cell_file(folder / "cell.yaml")
    lines = [plain(NodeSpec(id=f"node-{n:03}", pool="training", gpus=8)) for n in range(nodes)]
    (folder / "nodes.jsonl").write_text("".join(json.dumps({"cell": CELL, "node": line}) + "\n" for line in lines))
    as_admin = admin or KafkaAccess(kafka)
    report = await create_topics(as_admin, declared_topics(file, namespace, copies), replicas=copies)
    assert report.differences == ()
    log = KafkaLog(as_admin, "test")
    await log.start()
    layout = layout_of(file, namespace)
    wanted = service_set(
        kafka=kafka,
        redis=redis,
        namespace=namespace,
        cell_file=folder / "cell.yaml",
        data_dir=folder / "data",
        nodes_file=folder / "nodes.jsonl",
        replicas=replicas,
        more={**(more or {}), "FALLOW_REPLICAS": str(copies)},
    )
    specs = [replace(spec, environment={**spec.environment, **own(spec.name)}) for spec in wanted.specs]
    services = Services((*specs, *beside), environment=wanted.environment, run_dir=folder / "run")
    cell = RunningCell(services, log, layout, Follower(log, layout, CELL, snapshots=False), folder)
    try:
        await services.start()
        await services.wait_ready(wait_s=60)
        await cell.follower.start()
        if begins_at_0:
            await cell.until(lambda c: len(c.state.nodes) >= nodes, what="the nodes to join")
        yield cell
    finally:
        await cell.follower.stop()
        await services.stop()
        await log.stop()
