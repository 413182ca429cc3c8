"""The hard load: jobs as many tenants have them, each class with CPUs and memory of its own.

50 tenants of 5 priorities each. Of a hundred jobs 64 want one GPU, 12 two, 6 four and 10 a whole node; 8 are gangs of
whole nodes, of which 3 would like to be below one leaf switch and 2 have to be. One of a hundred fails, and one is
cancelled by its tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from fallow.bench.load.job_mix import GPUS_PER_NODE, Ready, job_id
from fallow.replay.workload import CELL, QUEUE
from fallow.shared.events.base import Command
from fallow.shared.events.codec.encoding import ce_headers, encode
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Resources, TopologyRequest, VirtualRun, Wish
from fallow.shared.events.submissions import CancelJob, SubmitJob
from fallow.shared.log.machine.partitioner import partition_of

TENANTS, PRIORITIES = 50, 5
CLASSES = 2_000
"""Classes where no number is named: eight for each tenant and priority."""

CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU = 12_000, 131_072
"""A GPU's share of its node: 12 cores, 128 GiB."""

PARTS_PERCENT = (70, 30, 90, 50, 110)
"""What a worker wants of the shares of its GPUs, in CPUs and in memory: 70 % in the mean."""

WHOLE_PARTS_PERCENT = (70, 50, 80, 60)
"""The shares for a worker that takes a whole node and so can have no more GPUs than that."""

STEP_MIB = 64
"""By so much memory a class differs from one that would be the same."""

FAILED_PERCENT, CANCELLED_PERCENT = 1, 1
PREFERRED, REQUIRED = TopologyRequest(level=Level.LEAF), TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)


@dataclass(frozen=True, slots=True)
class Kind:
    """So many of a hundred jobs want workers of so many GPUs, from the fewest to the most of them."""

    name: str
    percent: int
    gpus: int
    workers: tuple[int, int] = (1, 1)
    topology: TopologyRequest | None = None


KINDS = (
    Kind("1-gpu", 64, 1),
    Kind("2-gpus", 12, 2),
    Kind("4-gpus", 6, 4),
    Kind("node", 10, 8),
    Kind("gang", 3, 8, (2, 8)),
    Kind("gang-leaf-preferred", 3, 8, (2, 8), PREFERRED),
    Kind("gang-leaf-required", 2, 8, (2, 4), REQUIRED),
)


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs that differ in nothing but their id and their run: `workers` of `gpus` each, of the Kind of this name."""

    kind: str
    tenant: str
    priority: int
    workers: int
    gpus: int
    cpu_milli: int
    memory_mib: int
    topology: TopologyRequest | None

    @property
    def gpus_all(self) -> int:
        """The GPUs of all workers."""
        return self.workers * self.gpus

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes under which its waits are told."""
        priority = f"priority-{self.priority}"
        return (self.kind, priority, f"{self.kind}/{priority}")


def tenant_name(number: int) -> str:
    """The name of a tenant."""
    return f"tenant-{number:02}"


class RealMix:
    """So many classes, always the same for the same seed; a job is of any of them with the same chance."""

    def __init__(self, classes: int = CLASSES, seed: int = 1) -> None:
        self.classes = tuple(_classes(classes, Random(seed)))  # noqa: S311 - a load, not a secret
        self._seed = seed

    @property
    def gpus_mean(self) -> float:
        """GPUs of a job."""
        return fmean(each.gpus_all for each in self.classes)

    def shares(self) -> dict[str, float]:
        """Each tenant's part of all GPUs that are asked for; 0 for one without a class."""
        asked = {tenant_name(number): 0 for number in range(TENANTS)}
        for each in self.classes:
            asked[each.tenant] += each.gpus_all
        return {tenant: gpus / sum(asked.values()) for tenant, gpus in asked.items()}

    def maker(self, run_ms: int, partitions: int, wall_ms: int) -> Maker:
        """Jobs of these classes, the same for the same seed, with runs of so many milliseconds in the mean."""
        return Maker(self.classes, Random(self._seed), run_ms, partitions, wall_ms)  # noqa: S311 - the same


@dataclass(slots=True)
class Maker:
    """Makes jobs, numbered from 0; `made` are their classes. Runs last from half to one and a half of the mean. A job
    that fails does so half-way; one that is cancelled is so after half a mean run, and would have run for one and a
    half.
    """

    classes: tuple[JobClass, ...]
    chance: Random
    run_ms: int
    partitions: int
    wall_ms: int
    made: list[JobClass] = field(default_factory=list)

    def some(self, count: int) -> list[Ready]:
        """So many jobs, each of any class."""
        return [self.one(self.chance.choice(self.classes)) for _ in range(count)]

    def one(self, job_class: JobClass) -> Ready:
        """One of this class."""
        number, percent = len(self.made), self.chance.randrange(100)
        self.made.append(job_class)
        duration_ms = self.chance.randint(self.run_ms // 2, self.run_ms + self.run_ms // 2)
        run, cancel = VirtualRun(duration_ms=duration_ms), None
        if percent < FAILED_PERCENT:
            run = VirtualRun(duration_ms=duration_ms, fail_at_ms=duration_ms // 2)
        elif percent < FAILED_PERCENT + CANCELLED_PERCENT:
            run = VirtualRun(duration_ms=self.run_ms + self.run_ms // 2)
            asked = CancelJob(job=job_id(number), tenant=job_class.tenant, cell=CELL)
            cancel = ready(asked, f"bench/{number}/cancel", self.partitions, self.wall_ms)
        event = SubmitJob(job=spec_of(job_class, job_id(number), run))
        found = ready(event, f"bench/{number}", self.partitions, self.wall_ms)
        return found if cancel is None else replace(found, cancel=cancel, cancel_after_s=self.run_ms / 2_000)


def ready(event: Command, name: str, partitions: int, wall_ms: int) -> Ready:
    """A command as it goes onto the wire."""
    key = event.key().encode()
    headers = list(ce_headers(event, id=name, source="fallow-bench", wall_ms=wall_ms))
    return Ready(partition_of(key, partitions), key, encode(event), headers)


def spec_of(job_class: JobClass, job: str, run: VirtualRun) -> JobSpec:
    """A job of a class."""
    return JobSpec(
        id=job,
        tenant=job_class.tenant,
        queue=QUEUE,
        cell=CELL,
        priority=job_class.priority,
        workers=job_class.workers,
        resources=Resources(
            gpu_milli=job_class.gpus * GPU, cpu_milli=job_class.cpu_milli, memory_mib=job_class.memory_mib
        ),
        topology=job_class.topology,
        run=run,
    )


def _classes(count: int, chance: Random) -> Iterator[JobClass]:
    """All different: tenants take turns, and after each round of them the priority is the next one."""
    kinds, seen = _dealt(count), dict[tuple[object, ...], None]()
    chance.shuffle(kinds)
    cpu, memory = _parts(count, chance), _parts(count, chance)
    for number, kind in enumerate(kinds):
        tenant, priority = tenant_name(number % TENANTS), number // TENANTS % PRIORITIES
        workers = chance.randint(*kind.workers)
        parts = WHOLE_PARTS_PERCENT if kind.gpus == GPUS_PER_NODE else PARTS_PERCENT
        cpu_milli = CPU_MILLI_PER_GPU * kind.gpus * parts[cpu[number] % len(parts)] // 100
        memory_mib = MEMORY_MIB_PER_GPU * kind.gpus * parts[memory[number] % len(parts)] // 100
        while (key := (tenant, priority, kind.name, workers, cpu_milli, memory_mib)) in seen:
            memory_mib -= STEP_MIB
        seen[key] = None
        yield JobClass(kind.name, tenant, priority, workers, kind.gpus, cpu_milli, memory_mib, kind.topology)


def _dealt(count: int) -> list[Kind]:
    """So many kinds, each as often as its part says, to one: what is left goes to the largest remainders."""
    dealt = [(count * kind.percent // 100, -(count * kind.percent % 100), at) for at, kind in enumerate(KINDS)]
    left = count - sum(whole for whole, _, _ in dealt)
    first = {at for _, _, at in sorted(dealt, key=lambda each: each[1:])[:left]}
    return [KINDS[at] for whole, _, at in dealt for _ in range(whole + (at in first))]


def _parts(count: int, chance: Random) -> list[int]:
    """An index of a part for each class, all as often; a single class has the first."""
    indices = [at % len(PARTS_PERCENT) for at in range(count)]
    chance.shuffle(indices)
    return indices


def asked_of_share(classes: Iterable[JobClass]) -> tuple[float, float]:
    """CPUs and memory that these ask for, in parts of the shares of their GPUs."""
    found = list(classes)
    gpus = sum(each.gpus_all for each in found)
    cpu, memory = (
        sum(each.workers * each.cpu_milli for each in found),
        sum(each.workers * each.memory_mib for each in found),
    )
    return cpu / (gpus * CPU_MILLI_PER_GPU), memory / (gpus * MEMORY_MIB_PER_GPU)
