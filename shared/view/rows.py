"""What a reader of the view gets: jobs, nodes, tenants and the cell in a few numbers, each as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.node import takes_work
from fallow.shared.events.fields.values import JobKind, LoanStatus, NodeRole, NodeStatus
from fallow.shared.events.reasons import PendingReason

WAITED_FOR_NAMED_MAX = 3
"""So many of the jobs for which a job waits are named in its row."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one worker of a job is."""

    rank: int
    node: str
    devices: tuple[int, ...]
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job. Of one that is over the cell remembers who it was and how it ended: the rest is empty then.

    `position` counts from 0 within its queue, None unless it is queued. `places` are all that it holds, also while it
    grows, shrinks or stops. `planned_start_ms` is when it would start by estimates, None where that is not known.
    `deferred` is why it waits as it is now, `held_why` why it is held where no person wished so. `waits_for` are the
    first of those of its `after` that are not over yet, `waits_for_more` how many more there are.
    """

    id: str
    tenant: str
    status: JobStatus
    queue: str = ""
    priority: int = 0
    kind: JobKind | None = None
    gpus_milli: int = 0
    workers: int = 0
    attempt: int = 0
    deferred: PendingReason | None = None
    submit_ms: int | None = None
    not_before_ms: int = 0
    first_start_ms: int | None = None
    started_ms: int | None = None
    over_ms: int | None = None
    places: tuple[Place, ...] = ()
    preemptions: int = 0
    failures: int = 0
    position: int | None = None
    planned_start_ms: int | None = None
    held_why: str = ""
    waits_for: tuple[str, ...] = ()
    waits_for_more: int = 0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node. `pool` is where it works now, `home_pool` where it belongs; `jobs` names each job and its workers, and
    `gpus_held` is how many devices are held for waiting jobs.
    """

    id: str
    pool: str
    home_pool: str
    gpu_type: str
    role: NodeRole
    status: NodeStatus
    gpus: int
    gpus_free: int
    gpus_failed: tuple[int, ...]
    allocated_milli: int
    cpu_milli: int
    cpu_used_milli: int
    memory_mib: int
    memory_used_mib: int
    jobs: tuple[tuple[str, int], ...]
    loan: str | None
    loan_status: LoanStatus
    loan_deadline_ms: int | None
    drain_deadline_ms: int | None
    reason: str
    maintenance_ms: tuple[int, int] | None = None
    maintenance_why: str = ""
    silent_wall_ms: int = 0
    gpus_held: int = 0

    @property
    def takes_work(self) -> bool:
        """Whether new work may come here; the same as the node says of itself (`Node.takes_work`)."""
        return takes_work(self.status, self.loan_status, self.silent_wall_ms)


@dataclass(frozen=True, slots=True)
class AccountRow:
    """A tenant's use of one GPU type, that of its children included. `limit_milli` None: no limit but the cell."""

    gpu_type: str
    used_milli: int
    guaranteed_milli: int
    limit_milli: int | None
    borrowed_milli: int


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant: its accounts by GPU type, and how many of its jobs wait and hold places."""

    tenant: str
    accounts: tuple[AccountRow, ...]
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool in numbers. `free_whole` counts devices that are wholly free on nodes that take new work."""

    pool: str
    nodes: int
    nodes_usable: int
    nodes_fragmented: int
    gpus_milli: int
    allocated_milli: int
    free_whole: int


@dataclass(frozen=True, slots=True)
class QueueHeadRows:
    """The head of one queue, and how many jobs wait in it altogether."""

    queue: str
    length: int
    jobs: tuple[JobRow, ...]


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """The cell in a few numbers. `jobs` counts those of each status, `queues` those in each queue that is not empty."""

    pools: tuple[PoolRow, ...]
    nodes: int
    jobs: dict[JobStatus, int]
    queues: dict[str, int]
