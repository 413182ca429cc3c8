"""`fallow bench cycle`: what a start costs placement behind a backlog, and how soon a free GPU has its next job.

Placement and its writer run in this process, without Kafka, on a cell whose GPUs are all in use. Jobs of one GPU end
all the time, and as many come as start, so that a backlog of so many jobs of so many classes stands behind them. The
cell's clock goes by 20 ms a step, or by what a step took, if that is longer.
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from time import process_time

from rich.console import Console

from fallow.bench.figure import Figure
from fallow.bench.load.load import percentile
from fallow.bench.load.processor_time import ProcessorTime
from fallow.services.placement.service import Input, PlacementService
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, NodeStatus, Resources, RunStatus, WorkerPlace
from fallow.shared.events.jobs import AdmittedJob, JobsAdmitted
from fallow.shared.events.nodes import RunsReported, RunStatusUpdate
from fallow.shared.log.machine.writer import Draft, Writer
from fallow.shared.runtime.collector import tune_collector

GPUS_PER_NODE = 8
STEP_MS = 20.0
RUN_MS = 16_000
BACKLOGS = (900, 20_000, 100_000)
CLASSES = ((1, 1), (50, 5), (200, 10))
"""Tenants, and priorities of each."""

AT_ONCE = 2_000
CROWD = "crowd"
"""The tenant of whose jobs no two are alike."""

DIGEST = "0" * 32
CELL, POOL = "main", "bench"


@dataclass(slots=True)
class Row:
    """What one backlog came to. `waits_ms`: from the end of a GPU's job to the decision that starts the next one."""

    starts: int = 0
    spent_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)
    bytes_per_waiting_job: int = 0
    gpus_in_use_pct: float = 0.0


class Busy:
    """A cell whose GPUs are all in use, and what its nodes say."""

    def __init__(self, nodes: int, tenants: int, priorities: int, crowd: int = 0) -> None:
        """Beside the jobs of so many tenants with so many priorities wait `crowd` others, each of its own class."""
        names = tuple(f"team-{number:03}" for number in range(tenants))
        self.file = CellFile(
            cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name=POOL, gpus=nodes * GPUS_PER_NODE),)),),
            tenants=tuple(Tenant(name=name) for name in (*names, *((CROWD,) if crowd else ()))),
        )
        self.classes = [(name, priority) for name in names for priority in range(priorities)]
        self.gpus, self.made, self.words = nodes * GPUS_PER_NODE, 0, 0
        self.crowd, self.crowd_made = crowd, 0
        self.random = Random(1)  # noqa: S311 - the jobs of a benchmark
        state = CellState(CELL)
        for number in range(nodes):
            spec = NodeSpec(id=f"node-{number:05}", pool=POOL, gpus=GPUS_PER_NODE)
            apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
        self.service, self.writer = PlacementService(state, self.file, writer="placement-1"), Writer(state)
        self.now_ms = 0.0
        self.read = {"jobs-0": 0, "nodes-0": 0}
        self.ends: list[tuple[float, str, int, WorkerPlace]] = []
        self.free: dict[tuple[str, int], float] = {}
        self.fresh: list[tuple[str, int, str]] = []
        self.row = Row()

    @property
    def waiting(self) -> int:
        """How many jobs wait, without the crowd."""
        return self.service.state.waiting - self.crowd_made

    def submit(self, count: int) -> list[Input]:
        """So many new jobs of one GPU, of any class."""
        jobs = []
        for _ in range(count):
            self.made += 1
            tenant, priority = self.random.choice(self.classes)
            spec = JobSpec(
                id=f"job-{self.made:08}",
                tenant=tenant,
                priority=priority,
                pools=(POOL,),
                resources=Resources(gpu_milli=GPU),
            )
            jobs.append(AdmittedJob(spec=spec, submit_ms=int(self.now_ms), digest=DIGEST))
        return self._admitted(jobs)

    def crowd_in(self, count: int) -> list[Input]:
        """So many jobs of the crowd: each wants another amount of memory, and a whole node, of which none is free."""
        jobs = []
        for _ in range(count):
            self.crowd_made += 1
            wants = Resources(gpu_milli=GPUS_PER_NODE * GPU, memory_mib=self.crowd_made)
            spec = JobSpec(id=f"crowd-{self.crowd_made:08}", tenant=CROWD, pools=(POOL,), resources=wants)
            jobs.append(AdmittedJob(spec=spec, submit_ms=int(self.now_ms), digest=DIGEST))
        return self._admitted(jobs)

    def _admitted(self, jobs: list[AdmittedJob]) -> list[Input]:
        return [self._input("jobs-0", JobsAdmitted(cell=CELL, jobs=tuple(jobs)))] if jobs else []

    def _input(self, source: str, event: JobsAdmitted | RunsReported) -> Input:
        self.read[source] += 1
        return Input(source, self.read[source], event, 400 * len(event.jobs) if isinstance(event, JobsAdmitted) else 0)

    def said(self) -> list[Input]:
        """The words of nodes: what was told to start has started, and what has run for its time is over."""
        words = [self._word(node, job, attempt, RunStatus.RUNNING) for job, attempt, node in self.fresh]
        self.fresh = []
        while self.ends and self.ends[0][0] <= self.now_ms:
            end_ms, job, attempt, place = heappop(self.ends)
            self.free.update({(place.node, device): end_ms for device in place.devices})
            words.append(self._word(place.node, job, attempt, RunStatus.FINISHED))
        groups = [tuple(words[at : at + 500]) for at in range(0, len(words), 500)]
        return [self._input("nodes-0", RunsReported(cell=CELL, words=group)) for group in groups]

    def _word(self, node: str, job: str, attempt: int, status: RunStatus) -> RunStatusUpdate:
        self.words += 1
        at_ms = int(self.now_ms)
        return RunStatusUpdate(
            node=node, boot="boot-1", seq=self.words, at_ms=at_ms, job=job, attempt=attempt, status=status
        )

    def step(self, inputs: Iterable[Input]) -> None:
        """Let placement decide until it is at rest, by the clock of its own processor time."""
        begin_ms, spent_s, goes_on, now_ms = self.now_ms, 0.0, True, int(self.now_ms)
        self.service.take(list(inputs))
        while goes_on:
            begin_s = process_time()
            self.writer.begin()
            tried = self.service.decide(now_ms, now_ms)
            if tried is None:
                self.writer.abandon()
                break
            assert tried.fault is None, tried.fault
            draft = self.writer.draft(tried.effects, tried.inputs, tried.at_ms, None, tried.specs_read)
            assert isinstance(draft, Draft), draft
            assert self.writer.appended(self.writer.state.offset + 1), "this bench is the only writer"
            self.service.accepted(tried)
            self.service.note(draft.decision.effects, now_ms)
            goes_on = tried.has_more
            spent_s += process_time() - begin_s
            self._note(draft.decision.effects, begin_ms + spent_s * 1_000)
        self.row.spent_s += spent_s
        self.now_ms = begin_ms + max(STEP_MS, spent_s * 1_000)

    def _note(self, effects: Iterable[e.AnyEffect], decided_ms: float) -> None:
        for effect in effects:
            if isinstance(effect, e.JobStarted):
                (place,) = effect.workers
                self.row.starts += 1
                for device in place.devices:
                    free_ms = self.free.pop((place.node, device), None)
                    if free_ms is not None:
                        self.row.waits_ms.append(decided_ms - free_ms)
                is_first = self.made <= self.gpus  # then the ends shall not come all at one time
                end_ms = decided_ms + self.random.randint(0 if is_first else RUN_MS // 2, RUN_MS * 3 // 2)
                self.fresh.append((effect.job, effect.attempt, place.node))
                heappush(self.ends, (end_ms, effect.job, effect.attempt, place))

    def fill(self, backlog: int) -> None:
        """Use all GPUs, and let so many wait behind them."""
        while self.made < self.gpus:
            self.step(self.submit(min(AT_ONCE, self.gpus - self.made)))
        begin_ms = self.now_ms
        tracemalloc.start()
        while self.waiting < backlog:
            self.step(self.submit(min(AT_ONCE, backlog - self.waiting)))
        self.row.bytes_per_waiting_job = tracemalloc.get_traced_memory()[0] // backlog
        tracemalloc.stop()
        while self.crowd_made < self.crowd:
            self.step(self.crowd_in(min(AT_ONCE, self.crowd - self.crowd_made)))
        self.now_ms = begin_ms  # what ends in the meantime would end all at once

    def run(self, backlog: int, seconds: float) -> Row:
        """As many come as start, for so long."""
        self.row = Row(bytes_per_waiting_job=self.row.bytes_per_waiting_job)
        begin_ms = self.now_ms
        while self.now_ms < begin_ms + seconds * 1_000:
            self.step([*self.said(), *self.submit(max(0, backlog - self.waiting))])
        idle_ms = sum(self.row.waits_ms) + sum(self.now_ms - free_ms for free_ms in self.free.values())
        self.row.gpus_in_use_pct = 100 * (1 - idle_ms / (self.gpus * (self.now_ms - begin_ms)))
        return self.row


def cycle(console: Console, nodes: int, seconds: float, crowd: int, backlogs: Sequence[int] = BACKLOGS) -> Figure:
    """Run it: minutes on one core. With a crowd each row has a twin, in which so many jobs of one tenant wait, too."""
    watch, rows = ProcessorTime({"cycle": os.getpid()}), list[dict[str, object]]()
    tune_collector()
    for backlog in backlogs:
        for tenants, priorities in CLASSES:
            for beside in (0, crowd) if crowd else (0,):
                others = f" beside {beside} of one tenant" if beside else ""
                console.print(f"{backlog} jobs of {tenants * priorities} classes{others}", highlight=False)
                rows.append(row_of(nodes, backlog, tenants, priorities, seconds, beside))
    body: dict[str, object] = {"rows": rows, "nodes": nodes}
    return Figure("cycle", [_line(row) for row in rows], body, watch.used())


def row_of(
    nodes: int, backlog: int, tenants: int, priorities: int, seconds: float, crowd: int = 0
) -> dict[str, object]:
    """One row: a backlog of so many jobs of the classes of so many tenants with so many priorities each."""
    cell = Busy(nodes, tenants, priorities, crowd)
    cell.fill(backlog)
    cell.run(backlog, seconds / 2)
    found = cell.run(backlog, seconds)
    return {
        "waiting": backlog,
        "classes": tenants * priorities,
        "crowd": crowd,
        "gpus_in_use_pct": round(found.gpus_in_use_pct, 1),
        "start_us": round(found.spent_s / max(1, found.starts) * 1e6, 1),
        "release_to_start_ms_p50": percentile(sorted(found.waits_ms), 50),
        "release_to_start_ms_p99": percentile(sorted(found.waits_ms), 99),
        "bytes_per_waiting_job": found.bytes_per_waiting_job,
    }


def _line(row: dict[str, object]) -> str:
    beside = f" beside {row['crowd']} of one tenant, of which no two are alike" if row["crowd"] else ""
    return (
        f"{row['waiting']} jobs of {row['classes']} classes wait{beside}: {row['start_us']} us a start, "
        f"{row['gpus_in_use_pct']} % of the GPUs in use, {row['release_to_start_ms_p99']} ms (p99) from a GPU's "
        f"release to the next start, {row['bytes_per_waiting_job']} bytes a waiting job"
    )
