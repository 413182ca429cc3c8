"""Many small queues that borrow from each other, more work than room, and everything at once: the workloads K1 and K2
that Kueue measures itself by (its `test/performance/scheduler/configs/baseline` and `large-scale`, rangespec.yaml,
at commit ff69552).

A queue is a tenant here, and a cohort their parent, which has as much as its queues are guaranteed together. All that
is asked for is counted in GPUs, one worker a job. Kueue's workloads know no nodes; here each runs on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fallow.bench.load.job_mix import Ready, job_id
from fallow.replay.workload import CELL, QUEUE, Workload, pools_of, uniform_nodes
from fallow.shared.cluster.model.config import CellFile, CellPart, Queue, Tenant, TenantQuota
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.fields.values import GPU, JobSpec, Resources, VirtualRun
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from fallow.shared.log.machine.partitioner import partition_of

POOL = "bench"
SECOND_MS = 1_000


@dataclass(frozen=True, slots=True)
class Sort:
    """Jobs of one class in each queue: the n-th is submitted n times `every_ms` after the beginning."""

    name: str
    count: int
    every_ms: int
    run_ms: int
    priority: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Published:
    """What Kueue says of the same workload: its own runs, on its own machine, with preemption. `wall_s` is how long its
    process ran; `held_pct` how much of the quota its status had in use, in the mean from the first word of its queues
    to the last. `settings` says which figures are of which of its settings, where that is not one. `wall_s_here` is
    what the same run took on a machine of 2 cores as ours are, with its API server and etcd beside it; None: it was not
    run.
    """

    wall_s: float
    held_pct: float
    mean_s: Mapping[str, float]
    wall_s_here: float | None = None
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Contention:
    """One workload. Each queue is guaranteed `nominal` GPUs and may borrow all that its cohort has idle; a node has
    `gpus_per_node`.
    """

    name: str
    cohorts: int
    queues_per_cohort: int
    nominal: int
    borrowing: int
    gpus_per_node: int
    sorts: tuple[Sort, ...]
    kueue: Published

    @property
    def gpus(self) -> int:
        """All that there is."""
        return self.cohorts * self.queues_per_cohort * self.nominal

    @property
    def work_gpu_ms(self) -> int:
        """All that is to be done."""
        queues = self.cohorts * self.queues_per_cohort
        return queues * sum(sort.count * sort.run_ms * sort.gpus for sort in self.sorts)

    def use_pct(self, wall_s: float) -> float:
        """The work, of all that GPUs can do in so long: how long they are held for it makes no difference."""
        return round(100 * self.work_gpu_ms / (self.gpus * wall_s * SECOND_MS), 1)

    @property
    def floor_s(self) -> float:
        """No scheduler is quicker: every GPU busy from the beginning, or the last arrival."""
        last_ms = max(sort.count * sort.every_ms + sort.run_ms for sort in self.sorts)
        return max(self.work_gpu_ms / self.gpus, last_ms) / SECOND_MS


K1 = Contention(
    name="k1",
    cohorts=5,
    queues_per_cohort=6,
    nominal=20,
    borrowing=100,
    gpus_per_node=120,
    sorts=(
        Sort("small", 350, 100, 200, 50, 1),
        Sort("medium", 100, 500, 500, 100, 5),
        Sort("large", 50, 1_200, 1_000, 200, 20),
    ),
    kueue=Published(
        351.1,
        55.9,
        MappingProxyType({"large": 16.5, "medium": 76.8, "small": 215.5}),
        395.5,
        settings="55.9 % and 16.5 s are with its SchedulingEquivalenceHashing (58.7 % and 6.7 s without), all else is "
        "without",
    ),
)

K2 = Contention(
    name="k2",
    cohorts=10,
    queues_per_cohort=100,
    nominal=20,
    borrowing=100,
    gpus_per_node=200,
    sorts=(
        Sort("small", 35, 60, 150, 50, 1),
        Sort("medium", 11, 300, 350, 100, 5),
        Sort("large", 4, 700, 700, 200, 20),
    ),
    kueue=Published(1_179.4, 38.6, MappingProxyType({"large": 105.6, "medium": 256.4, "small": 700.4})),
)


def cell_of(contention: Contention) -> Workload:
    """The cell of a workload, without a job."""
    nodes = uniform_nodes(contention.gpus // contention.gpus_per_node, contention.gpus_per_node, pool=POOL)
    queues = (Queue(name=QUEUE, discipline=QueueDiscipline.BEST_EFFORT_FIFO),)
    cell = CellPart(name=CELL, ordinal=0, pools=pools_of(nodes), queues=queues)
    file = CellFile(cells=(cell,), tenants=tuple(_tenants(contention)))
    return Workload(commands=(), nodes=tuple(nodes), cell_file=file)


def _tenants(contention: Contention) -> Iterator[Tenant]:
    nominal, own = contention.nominal, contention.queues_per_cohort * contention.nominal
    limit = min(own, nominal + contention.borrowing)
    for cohort in range(contention.cohorts):
        yield Tenant(name=_cohort(cohort), quotas=(TenantQuota(guaranteed=own, limit=own),))
        for queue in range(contention.queues_per_cohort):
            quota = TenantQuota(guaranteed=nominal, limit=limit)
            yield Tenant(name=_tenant(cohort, queue), parent=_cohort(cohort), quotas=(quota,))


def _cohort(cohort: int) -> str:
    return f"cohort-{cohort:02d}"


def _tenant(cohort: int, queue: int) -> str:
    return f"queue-{cohort:02d}-{queue:03d}"


@dataclass(frozen=True, slots=True)
class Sent:
    """One job of the workload, ready to be sent `at_ms` after the beginning."""

    at_ms: int
    sort: str
    ready: Ready


def jobs(contention: Contention, partitions: int, wall_ms: int) -> list[Sent]:
    """All jobs in the order of their submission; the number of each, which its id holds, is its place here."""
    order = sorted(
        (number * sort.every_ms, cohort, queue, at)
        for at, sort in enumerate(contention.sorts)
        for number in range(1, sort.count + 1)
        for cohort in range(contention.cohorts)
        for queue in range(contention.queues_per_cohort)
    )
    found = []
    for number, (at_ms, cohort, queue, at) in enumerate(order):
        sort = contention.sorts[at]
        event = SubmitJob(job=_spec(number, sort, _tenant(cohort, queue)))
        key = event.key().encode()
        headers = list(ce_headers(event, id=f"bench/{number}", source="fallow-bench", wall_ms=wall_ms))
        found.append(Sent(at_ms, sort.name, Ready(partition_of(key, partitions), key, encode(event), headers)))
    return found


def _spec(number: int, sort: Sort, tenant: str) -> JobSpec:
    return JobSpec(
        id=job_id(number),
        tenant=tenant,
        queue=QUEUE,
        cell=CELL,
        priority=sort.priority,
        resources=Resources(gpu_milli=sort.gpus * GPU),
        run=VirtualRun(duration_ms=sort.run_ms),
        preemptible=True,
    )
