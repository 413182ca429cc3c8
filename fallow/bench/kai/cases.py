"""The cases of KAI-Scheduler's scale tests (its `test/e2e/scale`), and what it published of each
(docs/scale-tests/example-results.json of 3 July 2026, commit ab86e6c: kwok nodes, a scheduler of at most 5 CPUs).

Its queues are tenants here. One that has no quota borrows all; one that reclaims is guaranteed what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from fallow.bench.load.job_mix import GPUS_PER_NODE, job_id
from fallow.replay.workload import CELL, QUEUE, Workload, leaf_position, pools_of
from fallow.shared.cluster.model.config import CellFile, CellPart, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.values import (
    ENDLESS,
    GPU,
    JobSpec,
    Level,
    NodeSpec,
    Position,
    Resources,
    TopologyRequest,
    VirtualRun,
    Wish,
)
from fallow.shared.events.operations import CellPolicy, PreemptionMode
from fallow.shared.events.queue import QueueDiscipline

POOL = "bench"
BORROWER, OWNER, LIMITED, KEPT = "queue-0", "queue-1", "queue-2", "queue-3"
"""Nothing is taken from the last one. A cell file guarantees no more than there is, so a near miss needs one GPU that
its owner cannot have back; KAI's test guarantees one more to the borrower.
"""
NODES = 500
NODES_MIN = 20
"""With fewer the jobs that are moved by case `i` find no other place."""

GANG_WORKERS = 10
STUCK, RECLAIMS = 400, 10
KEPT_PER_NODE = 3
"""So many jobs of one GPU are left on each node of case `i`."""

BURST_EACH, BURST_WORKERS_MAX = 90, 256
BURST_RUN_MS = (20_000, 40_000)
ZONES, BLOCKS, RACKS = 4, 8, 8


class Way(StrEnum):
    """How the jobs of a case come, and until when it lasts."""

    TOGETHER = "together"
    """All at once, until the last one has started."""

    STOPPED = "stopped"
    """All while placement does not run; from its start until the last one has started."""

    SINGLY = "singly"
    """The next one when the one before has started; the mean time to a start."""

    MOVED = "moved"
    """All at once, until they and those that yielded to them run."""

    VERDICT = "verdict"
    """One, until it is told that too little could become free for it."""

    TO_THE_END = "to-the-end"
    """All at once, until the last one is over."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """So many equal jobs. `run_ms`: how long they run, from the first to the second; endless if none."""

    count: int
    tenant: str
    gpus: int = 1
    workers: int = 1
    run_ms: tuple[int, int] | None = None
    topology: TopologyRequest | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A case of a given size. `fill` runs when `asked` comes; `stuck` waits meanwhile and cannot start. `victims` is
    the most that one job of `asked` needs to yield; `guaranteed` goes by tenant, in GPUs.
    """

    nodes: int
    asked: tuple[Jobs, ...]
    fill: tuple[Jobs, ...] = ()
    stuck: tuple[Jobs, ...] = ()
    guaranteed: dict[str, int] = field(default_factory=dict)
    victims: int = 0

    @property
    def gpus(self) -> int:
        """All that there are."""
        return self.nodes * GPUS_PER_NODE


@dataclass(frozen=True, slots=True)
class Case:
    """One case: `kai_s` is what KAI took, None where it published nothing that compares."""

    name: str
    text: str
    way: Way
    plan: Callable[[int], Plan]
    kai_s: float | None = None


def _fill(nodes: int) -> Plan:
    return Plan(nodes, (Jobs(nodes * GPUS_PER_NODE, BORROWER),))


def _beside_stuck(nodes: int) -> Plan:
    return Plan(nodes, (Jobs(nodes * GPUS_PER_NODE, BORROWER),), stuck=(Jobs(min(STUCK, nodes), LIMITED),))


def _reclaim(nodes: int, *asked: Jobs, victims: int, whole_nodes: bool = False) -> Plan:
    """The borrower has filled the cell with small jobs, or such of a whole node; the owner may have all of it."""
    gpus = GPUS_PER_NODE if whole_nodes else 1
    fill = Jobs(nodes * GPUS_PER_NODE // gpus, BORROWER, gpus=gpus)
    return Plan(nodes, asked, (fill,), guaranteed={OWNER: nodes * GPUS_PER_NODE}, victims=victims)


def _one_gang(nodes: int) -> Plan:
    workers = nodes // 2
    gang = Jobs(1, OWNER, gpus=GPUS_PER_NODE, workers=workers)
    return _reclaim(nodes, gang, victims=workers * GPUS_PER_NODE)


def _gangs(nodes: int) -> Plan:
    workers = min(GANG_WORKERS, nodes)
    return _reclaim(nodes, Jobs(nodes // workers, OWNER, gpus=5, workers=workers), victims=workers * 5)


def _whole_cell(nodes: int) -> Plan:
    gang = Jobs(1, OWNER, gpus=GPUS_PER_NODE, workers=nodes)
    return _reclaim(nodes, gang, victims=nodes, whole_nodes=True)


def _consolidation(nodes: int) -> Plan:
    gangs = max(1, 41 * nodes // NODES)
    return _reclaim(nodes, Jobs(gangs, OWNER, gpus=6, workers=GANG_WORKERS), victims=GANG_WORKERS)


def _near_miss(nodes: int) -> Plan:
    wanted = GANG_WORKERS * GPUS_PER_NODE
    gang = Jobs(1, OWNER, gpus=GPUS_PER_NODE, workers=GANG_WORKERS)
    gpus = nodes * GPUS_PER_NODE
    fill = (Jobs(gpus - 1, BORROWER), Jobs(1, KEPT))
    return Plan(nodes, (gang,), fill, guaranteed={BORROWER: gpus - wanted, OWNER: wanted}, victims=wanted)


def _topology(nodes: int, wish: TopologyRequest | None) -> Plan:
    size = nodes * ZONES * BLOCKS * RACKS * 2 // NODES
    return Plan(size, (Jobs(1, BORROWER, gpus=2, workers=size, topology=wish),))


def _burst(nodes: int) -> Plan:
    """Jobs of each size by turns, the largest first."""
    sizes = [1 << power for power in reversed(range(20)) if 1 << power <= min(nodes, BURST_WORKERS_MAX)]
    sorts = [Jobs(1, BORROWER, gpus=GPUS_PER_NODE, workers=size, run_ms=BURST_RUN_MS) for size in sizes]
    return Plan(nodes, tuple(sorts * BURST_EACH))


PREFERRED_RACK = TopologyRequest(level=Level.LEAF, wish=Wish.PREFERRED)

CASES = (
    Case("a", "jobs of one GPU fill the cell, submitted while placement is stopped", Way.STOPPED, _fill, 397.8),
    Case("b", "jobs of one GPU fill the cell", Way.TOGETHER, _fill, 460.5),
    Case("c", "the same beside jobs of a tenant whose limit is 0", Way.TOGETHER, _beside_stuck, 398.1),
    Case("d", "a gang on half of the nodes takes back from jobs of one GPU", Way.TOGETHER, _one_gang, 102.0),
    Case(
        "e",
        "jobs of one GPU take back, one after another",
        Way.SINGLY,
        lambda nodes: _reclaim(nodes, Jobs(RECLAIMS, OWNER), victims=1),
        13.93,
    ),
    Case(
        "f",
        "jobs of one GPU take the whole cell back",
        Way.TOGETHER,
        lambda nodes: _reclaim(nodes, Jobs(nodes * GPUS_PER_NODE, OWNER), victims=1),
        694.5,
    ),
    Case("g", "gangs of ten workers of 5 GPUs take back, a node each", Way.TOGETHER, _gangs, 716.9),
    Case("h", "a gang takes all nodes back from jobs of a whole node", Way.TOGETHER, _whole_cell, 85.0),
    Case("i", "gangs need 6 of 8 GPUs on nodes of which 3 are in use", Way.MOVED, _consolidation, 455.7),
    Case("near_miss", "a gang of 80 GPUs, and one too few is borrowed", Way.VERDICT, _near_miss, 249.5),
    Case("near_miss_5000", "the same on ten times the nodes", Way.VERDICT, lambda nodes: _near_miss(10 * nodes)),
    Case(
        "topology",
        "a gang on all nodes, near each other if it can be",
        Way.TOGETHER,
        lambda nodes: _topology(nodes, PREFERRED_RACK),
        48.7,
    ),
    Case("topology_none", "the same without a wish", Way.TOGETHER, lambda nodes: _topology(nodes, None), 49.4),
    Case("k", "a burst of gangs of 1 to 256 nodes, to its end", Way.TO_THE_END, _burst),
)
BY_NAME = {case.name: case for case in CASES}
UNASKED = tuple(case for case in CASES if case.name != "k")
"""Without a word these are run: the burst takes three quarters of an hour."""


def cell_of(plan: Plan) -> Workload:
    """The cell of a case, without a job. In a queue that backfills a gang of half the cell waits its turn."""
    nodes = [_node(number, plan.nodes) for number in range(plan.nodes)]
    is_burst = any(jobs.run_ms for jobs in plan.asked)
    discipline = QueueDiscipline.BACKFILL if is_burst else QueueDiscipline.BEST_EFFORT_FIFO
    policy = CellPolicy(preemption=PreemptionMode.ALL)
    queues = (Queue(name=QUEUE, discipline=discipline),)
    cell = CellPart(name=CELL, ordinal=0, pools=pools_of(nodes), queues=queues, policy=policy)
    tenants = [
        Tenant(name=name, quotas=(TenantQuota(guaranteed=plan.guaranteed.get(name, 0)),)) for name in (BORROWER, OWNER)
    ]
    kept = Tenant(name=KEPT, quotas=(TenantQuota(reclaimable=False),))
    return Workload((), tuple(nodes), CellFile(cells=(cell,), tenants=(*tenants, Tenant(name=LIMITED), kept)))


def _node(number: int, nodes: int) -> NodeSpec:
    """In zones, blocks and racks of two where there are as many as KAI's topology set has; else eight on a leaf."""
    position = leaf_position(number)
    if nodes == ZONES * BLOCKS * RACKS * 2:
        rack = number // 2
        block, zone = rack // RACKS, rack // RACKS // BLOCKS
        position = Position(leaf=f"rack-{rack:03}", spine=f"block-{block:02}", superspine=f"zone-{zone}")
    return NodeSpec(id=f"node-{number + 1:05}", pool=POOL, gpus=GPUS_PER_NODE, position=position)


def specs(jobs: tuple[Jobs, ...], first: int) -> list[JobSpec]:
    """These jobs, numbered from `first`. Runs that are not all equal grow evenly from the shortest to the longest."""
    found = [each for each in jobs for _ in range(each.count)]
    return [_spec(first + at, each, at, len(found)) for at, each in enumerate(found)]


def _spec(number: int, jobs: Jobs, at: int, count: int) -> JobSpec:
    run, estimate_ms = ENDLESS, None
    if jobs.run_ms is not None:
        run_ms_min, run_ms_max = jobs.run_ms
        # 7 has no factor in common with the ten sizes: so each size has runs of all lengths.
        estimate_ms = run_ms_min + (run_ms_max - run_ms_min) * (at * 7 % count) // max(1, count - 1)
        run = VirtualRun(duration_ms=estimate_ms)
    return JobSpec(
        id=job_id(number),
        tenant=jobs.tenant,
        queue=QUEUE,
        cell=CELL,
        workers=jobs.workers,
        resources=Resources(gpu_milli=jobs.gpus * GPU),
        topology=jobs.topology,
        estimate_run_ms=estimate_ms,
        run=run,
    )
