"""A virtual cell in which tenants are driven against each other, and who yielded to whom there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, Resources, VirtualRun
from fallow.shared.events.jobs import JobAdmitted, JobRejected
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.runtime.files.cell_file import parse_cell_file
from fallow.simulator.trace.cell import VirtualCell

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS

NAMES = ("ada", "bob", "cyd")


@dataclass(frozen=True)
class Wish:
    """A job that comes at `at_ms`. Without an end it runs until it yields."""

    at_ms: int
    tenant: int
    workers: int = 1
    gpus: int = 1
    priority: int = 0
    runs_ms: int | None = None


@dataclass(frozen=True)
class Eviction:
    """A job was told to stop for another one."""

    at_ms: int
    victim: str
    preemptor: str
    why: str


class Driven:
    """Nodes of four GPUs, and tenants with so much guaranteed to each, and such weights."""

    def __init__(
        self, nodes: int, guaranteed: Sequence[int], weights: Sequence[int] | None = None, names: Sequence[str] = NAMES
    ) -> None:
        weights = weights or [1] * len(guaranteed)
        tenants = "".join(
            f"  - {{name: {name}, quotas: [{{gpu_type: gpu, guaranteed: {gpus}, weight: {weight}}}]}}\n"
            for name, gpus, weight in zip(names, guaranteed, weights, strict=False)
        )
        text = (
            "cells:\n  - name: main\n    ordinal: 0\n"
            f"    pools: [{{name: train, gpus: {4 * nodes}, gpus_per_node: 4}}]\n"
            "    queues: [{name: line, discipline: best-effort-fifo}]\n"
            "    policy: {preemption: all}\n"
            f"tenants:\n{tenants}"
        )
        self.names = names
        self.evictions: list[Eviction] = []
        self.starts: list[tuple[int, str]] = []
        specs = [NodeSpec(id=f"n{number}", pool="train", gpus=4) for number in range(nodes)]
        self.cell = VirtualCell(parse_cell_file(text, "driven"), specs, (self._follow,))
        self.cell.begin()
        self._count = 0

    def _follow(self, _: CellState, decision: Decision) -> None:
        for effect in decision.effects:
            if isinstance(effect, e.JobStopping):
                eviction = Eviction(decision.at_ms, effect.job, effect.for_whom, effect.why.value)
                self.evictions.append(eviction)
            elif isinstance(effect, e.JobStarted):
                self.starts.append((decision.at_ms, effect.job))

    def submit(self, wish: Wish) -> None:
        """Let time go on until the job comes, and let it come."""
        self.cell.advance(wish.at_ms)
        self._count += 1
        spec = JobSpec(
            id=f"job-{self._count}",
            tenant=self.names[wish.tenant],
            workers=wish.workers,
            priority=wish.priority,
            resources=Resources(gpu_milli=wish.gpus * GPU),
            run=VirtualRun(duration_ms=wish.runs_ms),
        )
        answer = self.cell.submit(SubmitJob(job=spec, submit_ms=max(wish.at_ms, self.cell.now_ms)))
        assert isinstance(answer, JobAdmitted | JobRejected), answer  # of what no pool ever holds nothing comes
        self.cell.settle()

    def used(self, tenant: int) -> int:
        """The GPUs that a tenant holds."""
        return self.cell.state.usage.get((self.names[tenant], "gpu"), 0) // GPU
