"""Cells in virtual time, in each of which one job waits for one reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fallow.services.executor.policy.records import Said
from fallow.services.placement.explain.explain import WhyNot, why_not
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.config import CellFile, CellPart, Limits, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import Job
from fallow.shared.events.effects import NodeSilent
from fallow.shared.events.fields.job_ids import own_id
from fallow.shared.events.fields.values import (
    DEVICES_MAX,
    Dependency,
    JobSpec,
    Level,
    NodeSpec,
    Position,
    Resources,
    RetryPolicy,
    TopologyRequest,
    VirtualRun,
    Wish,
)
from fallow.shared.events.nodes import RunStatusUpdate
from fallow.shared.events.operations import CellPolicy, PlanMaintenance, PreemptionMode, ReclaimFrom
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.reasons import PendingReason
from fallow.shared.events.submissions import SubmitJob
from fallow.simulator.trace.cell import VirtualCell

HOUR_MS = 3_600_000
LATE, ARRAY = "late", "many"
"""The job of each cell that waits; in one it is an element of this array."""

TENANTS = (Tenant(name="ada"), Tenant(name="bob"))


class Mute(VirtualCell):
    """Its nodes never confirm that a run has started."""

    def heard(self, said: list[Said]) -> list[Said]:
        return [each for each in said if not isinstance(each, RunStatusUpdate)]


def cell(
    *nodes: NodeSpec,
    kind: type[VirtualCell] = VirtualCell,
    tenants: tuple[Tenant, ...] = TENANTS,
    discipline: QueueDiscipline = QueueDiscipline.BEST_EFFORT_FIFO,
    **policy: Any,
) -> VirtualCell:
    """A cell of one pool of up to 16 nodes with 8 GPUs."""
    part = CellPart(
        name="c",
        ordinal=0,
        pools=(Pool(name="train", gpus=128),),
        queues=(Queue(name="line", discipline=discipline),),
        policy=CellPolicy(**policy),
    )
    found = kind(CellFile(cells=(part,), tenants=tenants), nodes or leaves(2))
    found.begin()
    return found


def leaves(*sizes: int) -> tuple[NodeSpec, ...]:
    """So many nodes of 8 GPUs below each of the leaf switches `leaf-7`, `leaf-8`, ..."""
    return tuple(
        NodeSpec(id=f"n{leaf}-{number}", pool="train", gpus=8, position=Position(leaf=f"leaf-{leaf}"))
        for leaf, size in enumerate(sizes, 7)
        for number in range(size)
    )


def submit(into: VirtualCell, name: str, gpus: int = 8, *, tenant: str = "ada", **spec: Any) -> None:
    """A job of workers with so many GPUs, that runs for an hour, submitted a moment after the one before."""
    fields: dict[str, Any] = {"run": VirtualRun(duration_ms=HOUR_MS), "resources": Resources(gpu_milli=1000 * gpus)}
    job = JobSpec(id=name, tenant=tenant, **{**fields, **spec})
    into.submit(SubmitJob(job=job))
    into.settle()
    into.advance(into.now_ms + 1)


def told(of: VirtualCell) -> WhyNot:
    """What a reader is told of it now."""
    return why_not(of.state, waiting(of), of.file.cells[0].queues, of.now_ms)


def waiting(of: VirtualCell) -> Job:
    """The job that it is about."""
    return next(job for job in of.state.jobs.values() if own_id(job.id) in (LATE, f"{ARRAY}.1"))


def no_such_nodes() -> VirtualCell:
    found = cell(*leaves(2))
    submit(found, LATE, workers=3)
    return found


def record_too_large() -> VirtualCell:
    """Each of 60 workers has 4,096 devices, which a record names one by one."""
    most, workers = DEVICES_MAX, 60
    part = CellPart(name="c", ordinal=0, pools=(Pool(name="train", gpus=workers * most, gpus_per_node=most),))
    limits = Limits(gpus_per_job=workers * most)
    nodes = tuple(NodeSpec(id=f"n{number}", pool="train", gpus=most) for number in range(workers))
    found = VirtualCell(CellFile(cells=(part,), tenants=TENANTS, limits=limits), nodes)
    found.begin()
    submit(found, LATE, most, workers=workers)
    return found


def quota_reached() -> VirtualCell:
    found = cell(tenants=(Tenant(name="ada", quotas=(TenantQuota(limit=12),)),))
    submit(found, "first")
    submit(found, LATE)
    return found


def no_free_gpus() -> VirtualCell:
    found = cell()
    submit(found, "first", workers=2)
    submit(found, LATE, 4)
    return found


def fragmented() -> VirtualCell:
    found = cell()
    submit(found, "first", 5)
    submit(found, "second", 5)
    submit(found, LATE, 6)
    return found


def unacknowledged() -> VirtualCell:
    found = cell(kind=Mute, max_unacknowledged_starts_per_node=1)
    submit(found, "first", 1)
    submit(found, "second", 1)
    submit(found, LATE, 1)
    return found


def nodes_silent() -> VirtualCell:
    found = cell()
    for node in found.state.nodes.values():
        apply(found.state, NodeSilent(node=node.id, boot=node.boot, silent_wall_ms=15_000), 0)
    submit(found, LATE)
    return found


def topology() -> VirtualCell:
    """Eight nodes are free, five of them below one leaf switch and three below the other."""
    found = cell(*leaves(8, 3), placement="best-fit")
    submit(found, "first", workers=3)
    submit(found, LATE, workers=8, topology=TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED))
    return found


def reserved_for_other() -> VirtualCell:
    owner = TenantQuota(guaranteed=16, reclaim=ReclaimFrom.LOWER_PRIORITY)
    found = cell(tenants=(Tenant(name="ada", quotas=(owner,)), Tenant(name="bob", quotas=(TenantQuota(),))))
    submit(found, "first")
    submit(found, "owner", workers=2)
    submit(found, LATE, tenant="bob")
    return found


def strict_line_with_an_owner_behind_a_borrower() -> VirtualCell:
    """One node, in use; behind each other wait a borrower and the owner, who could not take it back from him."""
    owner = TenantQuota(guaranteed=8, reclaim=ReclaimFrom.LOWER_PRIORITY)
    tenants = (Tenant(name="ada", quotas=(owner,)), Tenant(name="bob", quotas=(TenantQuota(),)))
    found = cell(*leaves(1), tenants=tenants, discipline=QueueDiscipline.STRICT_FIFO)
    submit(found, "first")
    submit(found, LATE, tenant="bob")
    submit(found, "owner")
    return found


def behind_head() -> VirtualCell:
    found = cell(discipline=QueueDiscipline.STRICT_FIFO)
    submit(found, "first")
    submit(found, "head", workers=2)
    submit(found, LATE)
    return found


def behind_a_head_that_waited_for_long() -> VirtualCell:
    found = cell(discipline=QueueDiscipline.BACKFILL, backfill_wait_ms=60_000)
    submit(found, "first")
    submit(found, "head", workers=2)
    found.advance(100_000)
    submit(found, LATE)
    return found


def backoff() -> VirtualCell:
    found = cell()
    submit(found, LATE, run=VirtualRun(duration_ms=HOUR_MS, fail_at_ms=10), retry=RetryPolicy(budget=1))
    found.advance(100)
    return found


def maintenance() -> VirtualCell:
    found = cell()
    for node in found.state.nodes:
        found.tell(PlanMaintenance(cell="c", node=node, begin_ms=1_000, end_ms=HOUR_MS))
    submit(found, LATE, max_run_ms=2_000)
    return found


def not_before() -> VirtualCell:
    found = cell()
    submit(found, LATE, not_before_ms=HOUR_MS)
    return found


def after() -> VirtualCell:
    found = cell()
    submit(found, "first")
    submit(found, LATE, after=(Dependency(job="first"),))
    return found


def array_limit() -> VirtualCell:
    found = cell()
    submit(found, ARRAY, 1, array=2, array_max_running=1)
    return found


def held() -> VirtualCell:
    found = cell()
    submit(found, LATE, hold=True)
    return found


def making_room() -> VirtualCell:
    """`other`, which started last, yields its node to the late job."""
    found = cell(kind=Mute, preemption=PreemptionMode.ALL)
    for name in ("low", "other"):
        submit(found, name)
    submit(found, LATE, priority=1)
    found.settle()
    return found


CELLS: dict[PendingReason, Callable[[], VirtualCell]] = {
    PendingReason.NO_SUCH_NODES: no_such_nodes,
    PendingReason.RECORD_TOO_LARGE: record_too_large,
    PendingReason.QUOTA_REACHED: quota_reached,
    PendingReason.NO_FREE_GPUS: no_free_gpus,
    PendingReason.FRAGMENTED: fragmented,
    PendingReason.UNACKNOWLEDGED: unacknowledged,
    PendingReason.NODES_SILENT: nodes_silent,
    PendingReason.TOPOLOGY: topology,
    PendingReason.RESERVED_FOR_OTHER: reserved_for_other,
    PendingReason.BEHIND_HEAD: behind_head,
    PendingReason.MAKING_ROOM: making_room,
    PendingReason.BACKOFF: backoff,
    PendingReason.MAINTENANCE: maintenance,
    PendingReason.NOT_BEFORE: not_before,
    PendingReason.AFTER: after,
    PendingReason.ARRAY_LIMIT: array_limit,
    PendingReason.HELD: held,
}
"""A cell for every code."""
