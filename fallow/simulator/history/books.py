"""The checker's own books of a cell: which job waits, which holds what, how much each tenant may use. Kept from effects
alone.

It shares nothing with the fold that every service runs: where both agree, two independent readings of the log do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fallow.shared.events.effects import ReservationSet, RoomHeld
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus, WorkerPlace
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import PendingReason, StopReason
from fallow.simulator.history.rules.queues.queue_rules import QueueRule

QUEUED, HELD, STARTING, RUNNING = "queued", "held", "starting", "running"
AWAITING = "awaiting"
RESIZING, STOPPING, PREEMPTED = "resizing", "stopping", "preempted"
FINISHED, FAILED, CANCELLED = "finished", "failed", "cancelled"
WAITS = (QUEUED, HELD, AWAITING)
HOLDS = (STARTING, RUNNING, RESIZING, STOPPING)


@dataclass(slots=True)
class JobPage:
    """What the log says of one job that is not over."""

    spec: JobSpec
    submit_ms: int
    digest: str
    status: str = QUEUED
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    preemptions: int = 0
    not_before_ms: int = 0
    deferred: PendingReason | None = None
    first_start_ms: int | None = None
    started_ms: int | None = None
    stop_why: StopReason | None = None
    places: tuple[WorkerPlace, ...] = ()
    done: dict[int, None] = field(default_factory=dict)
    starting: dict[int, None] = field(default_factory=dict)
    leaving: dict[int, None] = field(default_factory=dict)
    entered: dict[tuple[int, int], None] = field(default_factory=dict)
    paused: dict[int, int] = field(default_factory=dict)
    held_why: str = ""
    head_since_ms: int | None = None
    head_version: int = 0
    plan: ReservationSet | None = None
    stale_plan: int = 0
    running_ms: int | None = None
    yielded: dict[str, None] = field(default_factory=dict)
    room: RoomHeld | None = None
    stale_room: int = 0


@dataclass(frozen=True, slots=True)
class OverPage:
    """What is known of a job that is over; `number` counts the endings of the cell."""

    tenant: str
    digest: str
    status: str
    over_ms: int
    number: int


@dataclass(slots=True)
class NodePage:
    """What the log says of one node, and what is held there: milli-GPUs by device, CPU and memory in all."""

    spec: NodeSpec
    boot: str
    status: NodeStatus
    held: dict[int, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    workers: dict[str, int] = field(default_factory=dict)
    failed: dict[int, None] = field(default_factory=dict)
    lent_to: str | None = None
    loan: str | None = None
    is_leaving_loan: bool = False
    loan_until_ms: int | None = None
    wanted: NodeStatus = NodeStatus.READY
    maintenance_ms: tuple[int, int] | None = None
    in_maintenance: bool = False
    is_silent: bool = False
    is_another: bool = False
    drain_ms: int | None = None
    undrained: int = 0

    @property
    def pool(self) -> str:
        """Where it works now."""
        return self.lent_to or self.spec.pool

    @property
    def is_to_be_emptied(self) -> bool:
        """Whether replicas there may get another one beside them before they leave."""
        return self.status is NodeStatus.DRAINING or (self.status is NodeStatus.READY and self.is_another)


@dataclass(slots=True)
class ArrayPage:
    """An array of which some elements are not over: the first of them, the live ones, how many are over and to what
    ends they came. `is_seen`: the decision that brought it is over.
    """

    spec: JobSpec
    digest: str
    left: dict[str, None] = field(default_factory=dict)
    ends: dict[str, None] = field(default_factory=dict)
    over: int = 0
    is_seen: bool = False


@dataclass(slots=True)
class Books:
    """Everything about one cell as of one version."""

    cell: str
    version: int = 0
    at_ms: int = 0
    policy: CellPolicy = field(default_factory=CellPolicy)
    jobs: dict[str, JobPage] = field(default_factory=dict)
    arrays: dict[str, ArrayPage] = field(default_factory=dict)
    over: dict[str, OverPage] = field(default_factory=dict)
    endings: int = 0
    nodes: dict[str, NodePage] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Quota] = field(default_factory=dict)
    use: dict[tuple[str, str], int] = field(default_factory=dict)
    refused: dict[tuple[str, str], None] = field(default_factory=dict)
    ages: dict[str, tuple[int, int]] = field(default_factory=dict)
    rules: dict[str, QueueRule] = field(default_factory=dict)
    waiting_max: dict[str, int] = field(default_factory=dict)
    cell_file: str = ""
    yielding: dict[str, dict[str, StopReason]] = field(default_factory=dict)
    """For each waiting job the jobs that were told to stop for it, as long as no room is held."""

    def promise(self, page: JobPage, places: tuple[WorkerPlace, ...], sign: int) -> None:
        """What is held for a job counts as its tenant's use."""
        for place in places:
            node = self.nodes.get(place.node)
            if node is not None:
                account = (page.spec.tenant, node.spec.gpu_type)
                self.use[account] = self.use.get(account, 0) + sign * place.gpu_milli

    def hold(self, job_id: str, page: JobPage, places: tuple[WorkerPlace, ...]) -> None:
        """Let the job hold these places instead of those it held."""
        for place in page.places:
            self._count(job_id, page, place, -1)
        for place in places:
            self._count(job_id, page, place, 1)
        page.places = places

    def _count(self, job_id: str, page: JobPage, place: WorkerPlace, sign: int) -> None:
        node = self.nodes.get(place.node)
        if node is None:
            return
        for device in place.devices:
            node.held[device] = node.held.get(device, 0) + sign * (place.gpu_milli // len(place.devices))
        node.cpu_milli += sign * place.cpu_milli
        node.memory_mib += sign * place.memory_mib
        workers = node.workers.get(job_id, 0) + sign
        if workers:
            node.workers[job_id] = workers
        else:
            node.workers.pop(job_id, None)
        account = (page.spec.tenant, node.spec.gpu_type)
        self.use[account] = self.use.get(account, 0) + sign * place.gpu_milli

    def ancestors(self, tenant: str, gpu_type: str) -> list[str]:
        """The tenant and those above it in the tree of this GPU type."""
        line = [tenant]
        quota = self.quotas.get((tenant, gpu_type))
        while quota is not None and quota.parent is not None and quota.parent not in line:
            line.append(quota.parent)
            quota = self.quotas.get((quota.parent, gpu_type))
        return line

    def used_below(self, tenant: str, gpu_type: str) -> int:
        """Milli-GPUs that the tenant and all below it hold."""
        return sum(
            milli
            for (user, used_type), milli in self.use.items()
            if used_type == gpu_type and tenant in self.ancestors(user, gpu_type)
        )

    def is_remembered(self, over: OverPage) -> bool:
        """Whether the cell must still know a job that is over; with room for one that is just being forgotten."""
        is_young = over.over_ms + self.policy.finished_jobs_ttl_ms >= self.at_ms
        return is_young and self.endings - over.number < self.policy.finished_jobs_max
