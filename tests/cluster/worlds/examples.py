"""A small cell by hand: one pool of whole nodes, jobs in every state."""

from __future__ import annotations

from typing import Any

from fallow.shared.cluster.fold.fold import LogRecord, fold
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec, NodeRole, NodeSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import RequeueReason, StopReason
from tests.cluster.worlds.histories import CELL, extending

DIGEST = "0123456789abcdef" * 2


def node(id_: str, *, gpus: int = 8, pool: str = "train", role: NodeRole = NodeRole.TRAINING) -> e.NodeChanged:
    spec = NodeSpec(id=id_, pool=pool, gpus=gpus, cpu_milli=64_000, memory_mib=100_000, role=role)
    return e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY)


def enqueued(id_: str, **spec: Any) -> e.JobEnqueued:
    whole = JobSpec(**{"id": id_, "tenant": "ada", **spec})
    return e.JobEnqueued(spec=whole, submit_ms=0, digest=DIGEST)


def place(rank: int, on: str, *devices: int, milli: int = 0, cpu: int = 0, memory: int = 0) -> WorkerPlace:
    """A worker's place; `milli` 0 takes the devices whole."""
    held = milli or 1000 * len(devices)
    return WorkerPlace(rank=rank, node=on, devices=devices, gpu_milli=held, cpu_milli=cpu, memory_mib=memory)


def started(job: str, *places: WorkerPlace, attempt: int = 1) -> e.JobStarted:
    return e.JobStarted(job=job, attempt=attempt, workers=places)


def stopping(job: str, why: StopReason = StopReason.LOAN_RECLAIM) -> e.JobStopping:
    return e.JobStopping(job=job, attempt=1, why=why, grace_wall_ms=1_000)


def requeued(job: str, not_before_ms: int = 0) -> e.JobRequeued:
    return e.JobRequeued(job=job, reason=RequeueReason.PREEMPTED, not_before_ms=not_before_ms, failures=0)


def quota(tenant: str, *, limit: int | None, parent: str | None = None) -> e.QuotaSet:
    """A limit in whole GPUs."""
    milli = None if limit is None else limit * 1000
    return e.QuotaSet(quota=Quota(tenant=tenant, gpu_type="gpu", limit_milli=milli, parent=parent))


def cell(*effects: Any) -> CellState:
    """A cell behind one record with these effects."""
    state = CellState(CELL)
    fold(state, extending(state, effects))
    return state


def then(state: CellState, *effects: Any, at_ms: int | None = None) -> CellState:
    """This cell behind one record more."""
    return fold(state, next_record(state, *effects, at_ms=at_ms))


def next_record(state: CellState, *effects: Any, at_ms: int | None = None) -> LogRecord:
    """The record that would extend the cell by these effects."""
    return extending(state, effects, at_ms=at_ms)


TWO_GPUS = Resources(gpu_milli=2000)

LIFE: dict[JobStatus, list[Any]] = {
    JobStatus.QUEUED: [],
    JobStatus.HELD: [e.JobHeld(job="job")],
    JobStatus.STARTING: [started("job", place(0, "n1", 0), place(1, "n1", 1))],
}
LIFE[JobStatus.RUNNING] = [*LIFE[JobStatus.STARTING], e.JobRunning(job="job", attempt=1)]
LIFE[JobStatus.RESIZING] = [*LIFE[JobStatus.RUNNING], e.JobResizing(job="job", attempt=1, remove=(1,))]
LIFE[JobStatus.STOPPING] = [*LIFE[JobStatus.RUNNING], stopping("job")]
LIFE[JobStatus.PREEMPTED] = [*LIFE[JobStatus.STOPPING], e.JobPreempted(job="job", attempt=1, why=StopReason.PRIORITY)]
LIFE[JobStatus.FINISHED] = [*LIFE[JobStatus.RUNNING], e.JobFinished(job="job", attempt=1)]
"""What brings the elastic job `job` (1 to 4 workers) into each state."""


def cell_with_job(status: JobStatus) -> CellState:
    """A cell of two nodes whose job `job` is in this state."""
    return cell(node("n1"), node("n2"), enqueued("job", workers=4, workers_min=1), *LIFE[status])
