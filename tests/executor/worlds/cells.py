"""A small cell for tests of the executor: a log written by hand, and what a writer makes of the nodes' words."""

from __future__ import annotations

from collections.abc import Iterable

from fallow.services.executor.policy.records import Said
from fallow.services.executor.policy.turn import Now, Turn
from fallow.shared.cluster.fold.fold import extend
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.cluster.model.node import lowest
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.base import Event
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_START, Decision, next_chain
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    NodeSpec,
    NodeStatus,
    Resources,
    Run,
    RunStatus,
    VirtualRun,
    WorkerPlace,
)
from fallow.shared.events.nodes import NodeEvent, NodeJoined, NodesReported, RunsReported, RunStatusUpdate
from fallow.shared.events.reasons import FailReason, StopReason

CELL = "cell-a"


def node(number: int, gpus: int = 8) -> NodeSpec:
    return NodeSpec(id=f"node-{number}", pool="pool-a", gpus=gpus)


def now(cell_ms: int = 0, monotonic_ms: int = 0) -> Now:
    return Now(cell_ms, 1_000_000 + monotonic_ms, monotonic_ms)


class Writer:
    """Makes decisions and folds them. `log` holds every decision so far."""

    def __init__(self, nodes: Iterable[NodeSpec] = ()) -> None:
        self.state = CellState(CELL)
        self.log: list[Decision] = []
        self._chain = CHAIN_START
        for spec in nodes:
            self.decide(e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY))

    def decide(self, *effects: e.Effect, at_ms: int = 0) -> Decision:
        state = self.state
        at = max(at_ms, state.at_ms)
        decision = Decision(cell=CELL, version=state.version + 1, epoch=1, at_ms=at, effects=effects)  # type: ignore[arg-type]
        self._chain = next_chain(self._chain, encode(decision))
        extend(state, decision, self._chain)
        state.offset += 1
        self.log.append(decision)
        return decision

    def start(self, job: str, *nodes: str, run: Run | None = None, gpus: int = 1, at_ms: int = 0) -> Decision:
        effects: list[e.Effect] = []
        if job not in self.state.jobs:
            spec = JobSpec(
                id=job,
                tenant="acme",
                workers=len(nodes),
                resources=Resources(gpu_milli=gpus * GPU),
                run=run or VirtualRun(),
            )
            effects.append(e.JobEnqueued(spec=spec, submit_ms=0, digest="0" * 32))
        attempt = self.state.jobs[job].attempt + 1 if job in self.state.jobs else 1
        taken: dict[str, int] = {}
        places = []
        for rank, name in enumerate(nodes):
            free = self.state.nodes[name].free & ~taken.get(name, 0)
            devices = lowest(free, gpus)
            taken[name] = taken.get(name, 0) | sum(1 << device for device in devices)
            places.append(WorkerPlace(rank=rank, node=name, devices=devices, gpu_milli=gpus * GPU))
        effects.append(e.JobStarted(job=job, attempt=attempt, workers=tuple(places)))
        return self.decide(*effects, at_ms=at_ms)

    def stop(self, job: str, why: StopReason = StopReason.CANCELLED) -> Decision:
        attempt = self.state.jobs[job].attempt
        return self.decide(e.JobStopping(job=job, attempt=attempt, why=why, grace_wall_ms=1_000))

    def take_in(self, events: Iterable[Said], at_ms: int = 0) -> list[Decision]:
        """What a writer with one rule for each word would decide: enough for jobs of one run each."""
        made = []
        for event in events:
            effects = self._answer(event)
            if effects:
                made.append(self.decide(*effects, at_ms=at_ms))
        return made

    def _answer(self, event: Said) -> list[e.Effect]:
        if isinstance(event, NodeJoined):
            return [e.NodeChanged(spec=event.spec, boot=event.boot, status=NodeStatus.READY)]
        if not isinstance(event, RunStatusUpdate):
            return []
        job = self.state.jobs.get(event.job)
        if job is None or job.attempt != event.attempt or job.status not in HOLDING:
            return []
        if event.status is RunStatus.RUNNING:
            return [e.JobRunning(job=job.id, attempt=job.attempt)] if job.status == "starting" else []
        if event.status is RunStatus.FINISHED:
            return [e.JobFinished(job=job.id, attempt=job.attempt)]
        if event.status is RunStatus.FAILED:
            return [e.JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED)]
        return [e.JobCancelled(job=job.id)] if job.status == "stopping" else []


def said(turn: Turn) -> list[str]:
    """What a turn says, in short: `node-1 RunStarted job-1/1`, `node-1 NodeReport boot-1`."""
    return [f"{event.node} {_about(event)}" for event in turn.events]


_ABOUT_RUNS = {
    RunStatus.RUNNING: "RunStarted",
    RunStatus.FINISHED: "RunFinished",
    RunStatus.STOPPED: "RunStopped",
    RunStatus.FAILED: "RunFailed",
}


def _about(event: Said) -> str:
    if isinstance(event, RunStatusUpdate):
        return f"{_ABOUT_RUNS[event.status]} {event.job}/{event.attempt}"
    return f"{event.__class__.__name__} {event.boot}"


def each_said(event: Event) -> list[Said]:
    """What the nodes say in one record."""
    if isinstance(event, RunsReported):
        return list(event.words)
    if isinstance(event, NodesReported):
        return list(event.reports)
    assert isinstance(event, NodeEvent), event
    return [event]


def written(turn: Turn) -> list[str]:
    """What a turn writes into diaries, in short: `node-1 started job-1/1`."""
    return [f"{line.node} {line.event} {line.job}/{line.attempt}" for line in turn.lines]
