"""Random lives of a cell, from a seed: decisions that a writer could have made, with every effect in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.errors import IllegalEffect
from fallow.shared.cluster.fold.fold import LogRecord, extend, fold
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.file_in_force import as_effect
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.cluster.model.node import lowest
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.decisions import CHAIN_HEADER, CHAIN_START, Decision, next_chain
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeRole, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import ClearReason, FailReason, PendingReason, RequeueReason, StopReason
from fallow.shared.log.layout import Layout
from fallow.shared.log.port import Outgoing

CELL = "cell-a"
TENANTS = ("acme", "birch", "cedar")
GPU_TYPES = ("h100", "a100")


class History:
    """A cell that lives: each `decide` makes the next decision. `state` is the state behind the last one."""

    def __init__(self, seed: int, cell: str = CELL) -> None:
        self.state = CellState(cell)
        self._random = random.Random(seed)
        self._jobs = self._nodes = self._loans = 0
        self._chain = CHAIN_START

    def decide(self) -> Decision:
        mark = self.state.checkpoint()
        effects: list[Any] = []
        at_ms = self.state.at_ms + self._random.choice((0, 1, 1_000, 600_000))
        for action in self._random.choices(ACTIONS, k=self._random.randint(1, 6)):
            for effect in action(self):
                inner = self.state.checkpoint()
                try:
                    apply(self.state, effect, at_ms)
                except IllegalEffect:
                    self.state.rollback(inner)
                    break
                self.state.commit(inner)
                effects.append(effect)
        self.state.rollback(mark)
        decision = Decision(
            cell=self.state.cell,
            version=self.state.version + 1,
            epoch=self.state.epoch,
            inputs={"jobs-0": self._jobs, "nodes-0": self._nodes},
            at_ms=at_ms,
            effects=tuple(effects),
        )
        extend(self.state, decision, next_chain(self.state.chain, encode(decision)))
        self.state.offset += 1
        return decision

    def decisions(self, count: int) -> list[Decision]:
        return [self.decide() for _ in range(count)]

    def _job(self, *statuses: JobStatus) -> Job | None:
        found = [job for job in self.state.jobs.values() if job.status in statuses]
        return self._random.choice(found) if found else None

    def node_changed(self) -> list[e.Effect]:
        number = self._random.randint(0, self._nodes)
        self._nodes = max(self._nodes, number + 1)
        spec = NodeSpec(
            id=f"node-{number}",
            pool=f"pool-{number % 2}",
            gpu_type=GPU_TYPES[number % 2],
            gpus=8,
            cpu_milli=64_000,
            memory_mib=100_000,
            role=NodeRole.INFERENCE if number % 3 == 0 else NodeRole.TRAINING,
        )
        status = self._random.choice((NodeStatus.READY, NodeStatus.READY, NodeStatus.READY, NodeStatus.CORDONED))
        return [e.NodeChanged(spec=spec, boot="boot-1", status=status, reason="" if status == "ready" else "ünwell")]

    def enqueued(self) -> list[e.Effect]:
        self._jobs += 1
        gpus = self._random.choice((250, 500, GPU, 2 * GPU, 8 * GPU))
        spec = JobSpec(
            id=f"job-{self._jobs:05}",
            tenant=self._random.choice(TENANTS),
            queue=self._random.choice(("default", "night")),
            priority=self._random.choice((-1_000_000, -5, 0, 7, 1_000_000)),
            workers=self._random.randint(1, 3),
            workers_min=1,
            resources=Resources(gpu_milli=gpus, cpu_milli=500),
        )
        return [e.JobEnqueued(spec=spec, submit_ms=self._random.randint(0, 10**12), digest=f"{self._jobs:032x}")]

    def started(self) -> list[e.Effect]:
        job = self._job(JobStatus.QUEUED)
        if job is None:
            return []
        places = self._places(job)
        return [e.JobStarted(job=job.id, attempt=job.attempt + 1, workers=places)] if places else []

    def _places(self, job: Job) -> tuple[WorkerPlace, ...]:
        wanted = job.spec.resources
        places: list[WorkerPlace] = []
        for node in self.state.nodes.values():
            devices = lowest(node.free, max(1, wanted.gpu_milli // GPU))
            if node.is_schedulable and len(devices) * GPU >= wanted.gpu_milli and len(places) < job.spec.workers:
                place = WorkerPlace(
                    rank=len(places),
                    node=node.id,
                    devices=devices,
                    gpu_milli=wanted.gpu_milli,
                    cpu_milli=wanted.cpu_milli,
                    memory_mib=wanted.memory_mib,
                )
                places.append(place)
        return tuple(places)

    def running(self) -> list[e.Effect]:
        job = self._job(JobStatus.STARTING)
        return [e.JobRunning(job=job.id, attempt=job.attempt)] if job else []

    def finished(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING)
        return [e.JobFinished(job=job.id, attempt=job.attempt)] if job else []

    def failed(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING, JobStatus.STARTING, JobStatus.RESIZING)
        return [e.JobFailed(job=job.id, reason=FailReason.RETRIES_EXHAUSTED, text="it broke")] if job else []

    def resized(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING)
        if job is None:
            return []
        less = job.workers[:1]
        return [
            e.JobResizing(job=job.id, attempt=job.attempt, remove=tuple(place.rank for place in job.workers[1:])),
            e.JobResized(job=job.id, attempt=job.attempt, workers=less),
        ]

    def grows(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING)
        if job is None or len(job.workers) >= job.spec.workers:
            return []
        more = [replace(place, rank=len(job.workers)) for place in self._places(job)[-1:]]
        return [e.JobResizing(job=job.id, attempt=job.attempt, add=tuple(more))] if more else []

    def grown(self) -> list[e.Effect]:
        job = self._job(JobStatus.RESIZING)
        return [e.JobResized(job=job.id, attempt=job.attempt, workers=job.workers + job.joining)] if job else []

    def preempted(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING)
        if job is None:
            return []
        why = StopReason.PRIORITY
        return [
            e.JobStopping(job=job.id, attempt=job.attempt, why=why, for_whom="job-00001", grace_wall_ms=1_000),
            e.JobPreempted(job=job.id, attempt=job.attempt, why=why, for_whom="job-00001"),
            e.JobRequeued(job=job.id, reason=RequeueReason.PREEMPTED, not_before_ms=self.state.at_ms, failures=0),
        ]

    def stopping(self) -> list[e.Effect]:
        job = self._job(JobStatus.RUNNING)
        if job is None:
            return []
        return [e.JobStopping(job=job.id, attempt=job.attempt, why=StopReason.CANCELLED, grace_wall_ms=1_000)]

    def cancelled(self) -> list[e.Effect]:
        job = self._job(JobStatus.QUEUED, JobStatus.HELD, JobStatus.STOPPING)
        return [e.JobCancelled(job=job.id)] if job else []

    def deferred(self) -> list[e.Effect]:
        job = self._job(JobStatus.QUEUED)
        return [e.JobDeferred(job=job.id, code=self._random.choice(list(PendingReason)))] if job else []

    def held(self) -> list[e.Effect]:
        job = self._job(JobStatus.QUEUED)
        return [e.JobHeld(job=job.id)] if job else []

    def released(self) -> list[e.Effect]:
        job = self._job(JobStatus.HELD)
        return [e.JobReleased(job=job.id)] if job else []

    def updated(self) -> list[e.Effect]:
        job = self._job(JobStatus.QUEUED, JobStatus.RUNNING)
        if job is None:
            return []
        priority = self._random.choice((-3, 0, 12))
        return [e.JobUpdated.of(replace(job.spec, priority=priority, queue="default"))]

    def quota(self) -> list[e.Effect]:
        tenant = self._random.choice(TENANTS)
        quota = Quota(
            tenant=tenant,
            gpu_type=self._random.choice(GPU_TYPES),
            guaranteed_milli=self._random.choice((0, 4 * GPU)),
            limit_milli=self._random.choice((None, 16 * GPU)),
            parent=self._random.choice((None, "acme")) if tenant != "acme" else None,
        )
        return [e.QuotaSet(quota=quota, of_file=self._random.random() < 0.5)]

    def policy(self) -> list[e.Effect]:
        jobs, half_life_ms = self._random.choice(((3, 0), (50, 0), (3, 70), (50, 1_000)))
        return [
            e.PolicySet(
                policy=CellPolicy(finished_jobs_max=jobs, finished_jobs_ttl_ms=10**9, fair_half_life_ms=half_life_ms)
            )
        ]

    def cell_file(self) -> list[e.Effect]:
        aging_ms = self._random.choice((0, 1, 3_600_000))
        queues = tuple(Queue(name=name, aging_ms=aging_ms) for name in ("default", "night"))
        cell = CellPart(name=self.state.cell, ordinal=0, pools=(Pool(name="pool", gpus=8),), queues=queues)
        effect = as_effect(CellFile(cells=(cell,), tenants=tuple(Tenant(name=name) for name in TENANTS)))
        return [effect]

    def device(self) -> list[e.Effect]:
        if not self.state.nodes:
            return []
        node = self._random.choice(list(self.state.nodes))
        return [e.DeviceChanged(node=node, device=self._random.randint(0, 7), healthy=self._random.random() < 0.7)]

    def loan(self) -> list[e.Effect]:
        self._loans += 1
        idle = [node.id for node in self.state.nodes.values() if node.spec.role is NodeRole.INFERENCE]
        back = [node for node in self.state.nodes.values() if node.loan is not None]
        if back and self._random.random() < 0.5:
            node = self._random.choice(back)
            return [e.NodeReclaimed(node=node.id, loan=node.loan or "")]
        return [e.NodeLent(node=idle[0], loan=f"loan-{self._loans}", to_pool="pool-1")] if idle else []

    def reservation(self) -> list[e.Effect]:
        if self.state.reservations and self._random.random() < 0.5:
            job_id = self._random.choice(list(self.state.reservations))
            return [e.ReservationCleared(job=job_id, reason=ClearReason.REPLACED)]
        job = self._job(JobStatus.QUEUED)
        if job is None or not self.state.nodes:
            return []
        node = self._random.choice(list(self.state.nodes))
        place = WorkerPlace(rank=0, node=node, devices=(0,), gpu_milli=GPU)
        return [e.ReservationSet(job=job.id, workers=(place,), start_ms=self.state.at_ms + 1)]

    def writer(self) -> list[e.Effect]:
        return [e.WriterStarted(epoch=self.state.epoch + 1, writer="placement-1")]


ACTIONS: tuple[Callable[[History], list[e.Effect]], ...] = (
    *(History.enqueued,) * 5,
    *(History.node_changed,) * 2,
    *(History.started,) * 4,
    *(History.running,) * 3,
    *(History.finished,) * 2,
    History.failed,
    History.resized,
    *(History.grows,) * 3,
    History.grown,
    History.preempted,
    History.stopping,
    History.cancelled,
    History.deferred,
    History.held,
    History.released,
    History.updated,
    History.quota,
    History.cell_file,
    History.policy,
    History.device,
    History.loan,
    History.reservation,
    History.writer,
)


def log_records(decisions: Sequence[Decision], first_offset: int = 0, chain: str = CHAIN_START) -> list[LogRecord]:
    """These decisions as they stand in a log."""
    records = []
    for offset, decision in enumerate(decisions, first_offset):
        value = encode(decision)
        chain = next_chain(chain, value)
        records.append(LogRecord(offset, value, chain, decision))
    return records


def outgoing(layout: Layout, decisions: Sequence[Decision], chain: str = CHAIN_START) -> list[Outgoing]:
    """These decisions as records to be written."""
    messages = []
    for decision in decisions:
        chain = next_chain(chain, encode(decision))
        more = ((CHAIN_HEADER, chain.encode()),)
        messages.append(layout.outgoing(decision, id=str(decision.version), source="test", wall_ms=0, more=more))
    return messages


def folded(decisions: Sequence[Decision], cell: str = CELL) -> CellState:
    """The state behind these decisions."""
    state = CellState(cell)
    for record in log_records(decisions):
        fold(state, record)
    return state
