"""Short logs, written by hand, of a cell with two pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fallow.shared.cluster.fold.fold import extend
from fallow.shared.cluster.model.node import lowest
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.fields.values import GPU, JobSpec, NodeSpec, NodeStatus, Resources, WorkerPlace

CELL = "cell-a"

Take = Callable[[CellState, Decision], object]


class Log:
    """Decisions, and a taker of each of them with the state behind it."""

    def __init__(self, *takers: Take) -> None:
        self.state = CellState(CELL)
        self.decisions: list[Decision] = []
        self._takers = takers
        self._chain = CHAIN_START

    def decide(self, at_ms: int, *effects: e.Effect) -> Decision:
        decision = Decision(cell=CELL, version=self.state.version + 1, epoch=1, at_ms=at_ms, effects=effects)  # type: ignore[arg-type]
        self._chain = next_chain(self._chain, encode(decision))
        extend(self.state, decision, self._chain)
        self.state.offset += 1
        self.decisions.append(decision)
        for take in self._takers:
            take(self.state, decision)
        return decision

    def node(self, at_ms: int, name: str, gpus: int = 8, pool: str = "pool-a") -> Decision:
        spec = NodeSpec(id=name, pool=pool, gpus=gpus)
        return self.decide(at_ms, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY))

    def lose(self, at_ms: int, name: str) -> Decision:
        return self.decide(at_ms, e.LeaseExpired(node=name, boot="boot-1"))

    def submit(
        self, at_ms: int, job: str, gpus: int = 1, submit_ms: int | None = None, tenant: str = "acme"
    ) -> Decision:
        spec = JobSpec(id=job, tenant=tenant, resources=Resources(gpu_milli=gpus * GPU))
        submitted_ms = at_ms if submit_ms is None else submit_ms
        return self.decide(at_ms, e.JobEnqueued(spec=spec, submit_ms=submitted_ms, digest="0" * 32))

    def start(self, at_ms: int, job: str, node: str) -> Decision:
        entry = self.state.jobs[job]
        devices = lowest(self.state.nodes[node].free, entry.spec.resources.gpu_milli // GPU)
        place = WorkerPlace(rank=0, node=node, devices=devices, gpu_milli=len(devices) * GPU)
        return self.decide(at_ms, e.JobStarted(job=job, attempt=entry.attempt + 1, workers=(place,)))

    def finish(self, at_ms: int, job: str) -> Decision:
        return self.decide(at_ms, e.JobFinished(job=job, attempt=self.state.jobs[job].attempt))


def waits(log: Log, *rows: Sequence[int]) -> None:
    """One node of 1,000 GPUs, and a job of (GPUs, wait in ms) for each row."""
    log.node(0, "n1", gpus=1_000)
    for number, (gpus, wait_ms) in enumerate(rows):
        log.submit(0, f"job-{number}", gpus)
        log.start(log.state.at_ms, f"job-{number}", "n1") if not wait_ms else None
    for wait_ms, number in sorted((wait_ms, number) for number, (_, wait_ms) in enumerate(rows) if wait_ms):
        log.start(wait_ms, f"job-{number}", "n1")
