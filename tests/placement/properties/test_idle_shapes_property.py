"""The property of an idle cell for jobs of any shape: alone on their nodes or not, with a place in the network or not,
preemptible or not, beside guarantees that are lent and that are not. And that of an owner: beside a flow of borrowers
whose jobs all end it starts in what is guaranteed to it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import ClassVar

from hypothesis import example, given
from hypothesis import strategies as st

from fallow.services.placement.fit.empty_capacity import could_ever_hold
from fallow.services.placement.search.quota_check import is_ever_allowed
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant, TenantQuota
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.queue import QueueDiscipline
from tests.hypothesis_profile import reaches, stories
from tests.placement.properties.test_idle_property import JOBS_MAX, QUEUES, TENANTS, TYPES, TwoTypes
from tests.placement.worlds.borrowers import ends_until_start
from tests.placement.worlds.world import CELL, World, admitted, joined

SIZES = (1, 2, 4, 4, 5, 8)


class Shapes(TwoTypes):
    """Nodes of several sizes in two leaves, and jobs of any shape."""

    kinds_of_queues: ClassVar = [QUEUES]

    def __init__(self, random: Random) -> None:
        self.random, self.count = random, 0
        self.queues = random.sample(random.choice(self.kinds_of_queues), random.choice((1, 2, 2)))
        self.types = random.choice((("gpu",), ("gpu",), TYPES))
        is_mixed = random.random() < 0.3
        pools = {gpu_type: "gpu" if is_mixed else gpu_type for gpu_type in self.types}
        sizes = [(random.choice(SIZES), self.types[at % len(self.types)]) for at in range(random.randint(2, 6))]
        self.gpus = {each: sum(gpus for gpus, gpu_type in sizes if gpu_type == each) for each in self.types}
        self.world = World(self._file(tuple(dict.fromkeys(pools.values()))))
        self.world.checks = self.world.listens = False
        for at, (gpus, gpu_type) in enumerate(sizes):
            leaf = Position(leaf=f"l{random.randint(1, 2)}")
            self.world.tell(joined(f"n{at}", gpus, pool=pools[gpu_type], gpu_type=gpu_type, position=leaf))

    def _file(self, pools: tuple[str, ...]) -> CellFile:
        tenants, left = [Tenant(name="lab"), Tenant(name="guest")], dict(self.gpus)
        for name in TENANTS:
            quotas = []
            for gpu_type in self.types:
                guaranteed = min(left[gpu_type], self.random.choice((0, 1, 3, 4, 5, 8)))
                left[gpu_type] -= guaranteed
                lends, lent = self.random.random() < 0.5, self.random.choice((None, None, guaranteed // 2))
                quotas.append(TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, lends=lends, lend_limit=lent))
            parent = self.random.choice((None, None, "lab"))
            has_quotas = self.random.random() < 0.8
            tenants.append(Tenant(name=name, parent=parent, quotas=tuple(quotas) if has_quotas else ()))
        part = CellPart(
            name=CELL,
            ordinal=0,
            pools=tuple(Pool(name=name, gpus=200, gpu_type=name) for name in pools),
            queues=tuple(self.queues),
            policy=CellPolicy(node_lease_wall_ms=10**7, backfill_wait_ms=60_000),
        )
        return CellFile(cells=(part,), tenants=tuple(tenants))

    def _spec(self, number: int) -> JobSpec:
        random, spec = self.random, super()._spec(number)
        is_gang = random.random() < 0.8
        workers = random.choice((1, 1, 2, 3, 4)) if is_gang else random.choice((1, 2))
        wish = TopologyRequest(
            level=random.choice((Level.NODE, Level.LEAF)),
            wish=random.choice(list(Wish)),
            slice_workers=random.choice((None, None, 1, 2)),
        )
        return replace(
            spec,
            gang=is_gang,
            workers=workers,
            workers_min=None if is_gang else random.choice((1, workers)),
            gpu_type=random.choice((None, None, *self.types)),
            resources=Resources(gpu_milli=random.choice((500, GPU, GPU, 2 * GPU, 4 * GPU))),
            exclusive=random.random() < 0.4,
            preemptible=random.random() < 0.7,
            topology=wish if is_gang and random.random() < 0.4 else None,
        )

    def shapes(self) -> Counter[str]:
        """How many of its jobs are what the property is about, and how many of these have started."""
        found = Counter[str]()
        for job in self.world.state.jobs.values():
            spec, did = job.spec, "" if job.status is JobStatus.QUEUED else " started"
            is_required = spec.topology is not None and spec.topology.wish is Wish.REQUIRED
            found[f"exclusive{did}"] += spec.exclusive
            found[f"exclusive and required{did}"] += spec.exclusive and is_required
            found[f"firm{did}"] += not spec.preemptible
        return found


@given(stories(JOBS_MAX))
@example(Random(112))
@example(Random(242_818))
def test_while_nothing_runs_no_job_of_any_shape_waits_for_which_there_is_room(random: Random) -> None:
    reaches("a job that is alone on its nodes starts", judge(random)["exclusive started"])


def judge(random: Random) -> Counter[str]:
    cell = Shapes(random)
    cell.live()
    shapes = cell.shapes()
    cell.empty()
    assert cell.could_start() == []
    return shapes


def test_the_property_is_about_something() -> None:
    reached = Counter[str]()
    for seed in range(40):
        reached += judge(Random(seed))
    assert min(reached[f"{name} started"] for name in ("exclusive", "exclusive and required", "firm")) >= 3


class Beside(Shapes):
    """Such a cell, in which jobs of a tenant without any guarantee have all that they may have. Often no queue keeps
    anybody back.
    """

    kinds_of_queues: ClassVar = [
        QUEUES,
        [queue for queue in QUEUES if queue.discipline is QueueDiscipline.BEST_EFFORT_FIFO],
    ]

    def refill(self) -> None:
        """Some of the borrower's jobs wait at any time, one after the other in whatever queue."""
        jobs = self.world.state.jobs.values()
        while sum(job.status is JobStatus.QUEUED and job.spec.tenant == "guest" for job in jobs) < WAITING:
            self.count += 1
            spec = JobSpec(
                id=f"guest-{self.count}",
                tenant="guest",
                queue=self.random.choice(self.queues).name,
                resources=Resources(gpu_milli=self.random.choice((500, GPU, GPU, 2 * GPU))),
                exclusive=self.random.random() < 0.1,
            )
            self.world.tell(admitted(spec, self.world.now_ms))

    def own(self) -> JobSpec | None:
        """A job that fits whole into a guarantee, and into the cell; None where nothing is guaranteed to anybody."""
        quotas = [quota for quota in self.world.state.quotas.values() if quota.guaranteed_milli]
        if not quotas:
            return None
        random, lent = self.random, [quota for quota in quotas if quota.lends and quota.lend_limit_milli is None]
        quota = random.choice(lent or quotas)
        gpus, workers = random.choice(((1, quota.guaranteed_milli // GPU), (quota.guaranteed_milli // GPU, 1)))
        is_preemptible, queue = random.random() < 0.5, random.choice(self.queues).name
        slice_workers = random.choice((None, 1, 2))
        wish = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=slice_workers)
        return JobSpec(
            id="own",
            tenant=quota.tenant,
            queue=queue,
            gpu_type=quota.gpu_type,
            workers=workers,
            preemptible=is_preemptible,
            exclusive=random.random() < 0.3,
            topology=wish if random.random() < 0.3 else None,
            resources=Resources(gpu_milli=gpus * GPU),
        )

    def ends_until_start(self, own: JobSpec) -> int | None:
        """How many of the borrower's jobs end before the owner's job starts; None where it never does."""
        return ends_until_start(self.world, own, self.refill, self.random.choice, ENDS_MAX)


WAITING, ENDS_MAX = 4, 300


@given(st.integers(0, 10**9))
@example(30)
def test_an_owner_gets_what_is_guaranteed_to_it_beside_a_flow_of_borrowers(seed: int) -> None:
    reaches("an owner's job starts once borrowers' jobs have ended", flow(seed))


def flow(seed: int) -> int | None:
    """How many ends it took; None where there is no owner whose job could ever start."""
    beside = Beside(Random(seed))
    own = beside.own()
    if own is None:
        return None
    for _ in range(10):
        beside.refill()
    state, number = beside.world.state, len(beside.world.state.jobs)
    if not could_ever_hold(state, own):
        return None
    ends = beside.ends_until_start(own)
    assert ends is not None or not is_ever_allowed(state, state.jobs[own.id]), number
    return ends
