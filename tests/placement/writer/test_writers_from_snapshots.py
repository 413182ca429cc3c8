"""A writer that begins from a snapshot decides, byte for byte, as one that has folded the log: whatever the order in
which nodes joined, left and came back, and in which jobs and arrays came.
"""

from __future__ import annotations

from random import Random

from hypothesis import given

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import HOLDING, JobStatus
from fallow.shared.events import nodes as n
from fallow.shared.events import operations as o
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import (
    GPU,
    AfterWhen,
    Dependency,
    JobSpec,
    Level,
    Position,
    Resources,
    RetryPolicy,
    TopologyRequest,
)
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.cluster.worlds.table_orders import orders
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.worlds.replicas import word
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    joined,
    lost,
)

ROUNDS = 24
POOLS, TENANTS = ("west", "east", "north"), ("zoe", "bob", "ada")
POLICIES = ("best-fit", "spread", "first-fit", "e-binpack", "e-spread", "frag-aware", "lifetime")


def _file_of(random: Random) -> CellFile:
    disciplines = [random.choice(list(QueueDiscipline)) for _ in range(2)]
    order = random.choice(list(QueueOrder))
    queues = tuple(Queue(name=f"q{at}", discipline=each, order=order) for at, each in enumerate(disciplines))
    policy = o.CellPolicy(
        placement=random.choice(POLICIES),
        backfill_wait_ms=random.choice((4_000, 1_800_000)),
        fair_half_life_ms=random.choice((0, 160)),
        max_unacknowledged_starts_per_node=random.choice((0, 0, 2)),
    )
    pools = tuple(Pool(name=name, gpus=100) for name in POOLS)
    cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=queues, policy=policy)
    return CellFile(cells=(cell,), tenants=tuple(Tenant(name=tenant) for tenant in TENANTS))


class Twins:
    """The same things happen to two cells; when their writers change, one folds its log, one begins from a snapshot."""

    def __init__(self, random: Random) -> None:
        self.random, self.submitted, self.changes = random, 0, 0
        file = _file_of(random)
        self.folds, self.begins = World(file), World(file)
        self.names = [f"n{number}" for number in range(8)]
        random.shuffle(self.names)
        self.settle(*(self.node(name) for name in self.names[:6]))

    def settle(self, *events: Event) -> None:
        for world in (self.folds, self.begins):
            world.tell(*events)

    def node(self, name: str) -> Event:
        number = int(name[1:])
        where = Position(leaf=f"leaf-{number // 2}", spine=f"spine-{number // 4}")
        return joined(name, (4, 8)[number % 2], pool=POOLS[number % 3], position=where)

    def one_round(self) -> None:
        often = (self.submit, self.submit, self.end, self.end)
        self.random.choice((*often, self.cancel, self.nodes, self.nodes, self.quotas, self.wait))()
        if self.random.random() < 0.4:
            self.changes += 1
            self.folds.restart()
            self.begins.restart_from_snapshot(self.random)
        assert [each.value for each in self.folds.log] == [each.value for each in self.begins.log]
        assert orders(self.folds.state) == orders(self.begins.state)

    def submit(self) -> None:
        specs = [self.spec() for _ in range(self.random.randint(1, 4))]
        self.settle(*(admitted(spec, self.random.randint(0, 50)) for spec in specs))

    def spec(self) -> JobSpec:
        self.submitted += 1
        name, one_of = f"{self.random.randrange(1_000):03}-{self.submitted}", self.random.choice
        gpu_milli, is_gang = one_of((500, GPU, 2 * GPU, 4 * GPU)), self.random.random() < 0.8
        array = one_of((None, None, None, 3))
        waits_for = (
            [one_of(list(self.folds.state.jobs))] if self.folds.state.jobs and self.random.random() < 0.2 else []
        )
        return JobSpec(
            id=f"job-{name}",
            tenant=one_of(TENANTS),
            priority=one_of((0, 0, 0, 1)),
            queue=one_of(("q0", "q1")),
            pools=one_of(((), (), ("west",), ("north", "east"))),
            workers=one_of((1, 1, 2, 3)) if gpu_milli >= GPU else 1,
            gang=is_gang,
            array=array,
            array_max_running=array and one_of((None, 1)),
            after=tuple(Dependency(job=each, when=one_of(list(AfterWhen))) for each in waits_for),
            topology=one_of((None, None, TopologyRequest(level=Level.LEAF))) if is_gang else None,
            resources=Resources(gpu_milli=gpu_milli),
            retry=RetryPolicy(budget=3, backoff_ms=0),
        )

    def end(self) -> None:
        """Some jobs end, well or not."""
        said: list[Event] = []
        for job in self.folds.state.jobs.values():
            if job.status not in HOLDING or self.random.random() < 0.5:
                continue
            ends = (
                n.RunStopped if job.status is JobStatus.STOPPING else self.random.choice((n.RunFinished, n.RunFailed))
            )
            if job.spec.gang:
                said += [
                    ends(cell=CELL, node=node, boot="boot-1", seq=1, job=job.id, attempt=job.attempt)
                    for node in job.runs
                ]
            else:
                said += [word(ends, self.folds, job.id, place.rank) for place in job.workers]
        self.settle(*said)

    def cancel(self) -> None:
        jobs = list(self.folds.state.jobs.values())
        some = self.random.sample(jobs, min(2, len(jobs)))
        self.settle(*(cancel(job.id, job.spec.tenant) for job in some))

    def nodes(self) -> None:
        """Nodes are lost, forgotten, join or come back."""
        name = self.random.choice(self.names)
        self.settle(
            self.random.choice((self.node(name), self.node(name), lost(name), o.RemoveNode(cell=CELL, node=name)))
        )

    def quotas(self) -> None:
        tenants = self.random.sample(TENANTS, 2)
        quotas = [
            o.Quota(tenant=each, gpu_type="gpu", guaranteed_milli=GPU * self.random.choice((0, 4, 8)))
            for each in tenants
        ]
        self.settle(o.SetQuota(cell=CELL, quotas=tuple(quotas)))

    def wait(self) -> None:
        for world in (self.folds, self.begins):
            world.pass_time(2_000)


@given(stories(ROUNDS))
def test_a_writer_from_a_snapshot_decides_as_one_that_has_folded_the_log(story: Story) -> None:
    twins = Twins(story)
    for _ in rounds_of(story, ROUNDS):
        twins.one_round()
    state = twins.folds.state
    is_mixed = list(state.nodes) != sorted(state.nodes)
    reaches("writers change where nodes stand in no order of names", bool(twins.changes) and is_mixed)
    reaches("writers change where heads or guarantees are", bool(twins.changes and (state.heads or state.quotas)))
