"""Jobs that are no gangs, beside gangs: a writer that takes over gives them the workers that the one before would."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.events import nodes as n
from fallow.shared.events.base import Event
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.values import GPU, JobKind, JobSpec, Level, Position, Resources, RetryPolicy, RunStatus
from tests.hypothesis_profile import lengths, reaches
from tests.placement.replicas import word
from tests.placement.world import CELL, World, admitted, cancel, failed, finished, joined, lost, stopped, update

ROUNDS = 16
QUEUES = ("strict", "best", "fill")
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100)),
            queues=(
                Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO),
                Queue(name="best"),
                Queue(name="fill", discipline=QueueDiscipline.BACKFILL),
            ),
        ),
    ),
    tenants=(Tenant(name="ada", quotas=(TenantQuota(limit=9),)), Tenant(name="bob")),
)
NODES = tuple(
    joined(f"n{number}", 4, pool="train" if number % 3 else "extra", position=Position(leaf=f"leaf-{number % 2}"))
    for number in range(4)
)


class Twins:
    """The same things happen to a placement that goes on and to one whose writer changes now and then."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.worlds = (World(FILE), World(FILE))
        self.submitted = 0

    @property
    def jobs(self) -> list[Job]:
        return sorted(self.worlds[1].state.jobs.values(), key=lambda job: job.id)

    def settle(self, *events: Event) -> None:
        for world in self.worlds:
            world.tell(*events)

    def one_round(self) -> None:
        often = (self.submit, self.hear)
        self.random.choice((*often, *often, self.hear, self.change, self.nodes, self.wait))()
        if self.random.random() < 0.3:
            self.worlds[0].restart()

    def submit(self) -> None:
        self.settle(*(admitted(self.spec(), self.random.randint(0, 50)) for _ in range(self.random.randint(1, 4))))

    def spec(self) -> JobSpec:
        self.submitted += 1
        workers, kind = self.random.choice((1, 2, 3, 4)), self.random.choice((*JobKind, *JobKind, None))
        return JobSpec(
            id=f"job-{self.submitted:03}",
            tenant=self.random.choice(("ada", "bob")),
            priority=self.random.choice((0, 0, 1)),
            queue=self.random.choice(QUEUES),
            pools=self.random.choice((("train",), ("train", "extra"))),
            workers=workers,
            workers_min=self.random.choice((None, 1, workers)) if kind else None,
            kind=kind or JobKind.TRAINING,
            gang=kind is None,
            spread=self.random.choice((None, Level.LEAF)) if kind is JobKind.INFERENCE else None,
            resources=Resources(gpu_milli=self.random.choice((500, GPU, 2 * GPU))),
            retry=RetryPolicy(budget=2, backoff_ms=self.random.choice((0, 3_000))),
        )

    def hear(self) -> None:
        """Some workers start, end, fail, or have stopped."""
        said: list[Event] = []
        for job in self.jobs:
            if job.status not in HOLDING:
                continue
            if job.spec.gang:
                ends = stopped if job.status is JobStatus.STOPPING else self.random.choice((finished, failed))
                said += [ends(job.id, node, job.attempt) for node in job.runs] if self.random.random() < 0.4 else []
                continue
            for rank in sorted(int(key) for key in job.runs):
                told = self.of_worker(job, rank)
                said += [word(told, self.worlds[1], job.id, rank)] if told is not None else []
        self.settle(*said)

    def of_worker(self, job: Job, rank: int) -> type[n.RunEvent] | None:
        if rank in job.leaving or job.status is JobStatus.STOPPING:
            return self.random.choice((n.RunStopped, None))
        if job.runs[str(rank)] is RunStatus.STARTING:
            return self.random.choice((n.RunStarted, n.RunStarted, n.RunFailed, None))
        return self.random.choice((n.RunFinished, n.RunFailed, None, None, None))

    def change(self) -> None:
        """Services are scaled, some jobs are cancelled."""
        events: list[Event] = []
        for job in self.jobs:
            if job.spec.kind is JobKind.INFERENCE and self.random.random() < 0.4:
                events.append(update(job.id, job.spec.tenant, workers=self.random.randint(1, 5), workers_min=1))
            elif self.random.random() < 0.15:
                events.append(cancel(job.id, job.spec.tenant))
        self.settle(*events)

    def wait(self) -> None:
        """Time passes: workers enter whose pause is over."""
        for world in self.worlds:
            world.now_ms += 2_000
        self.settle()

    def nodes(self) -> None:
        """Nodes come, are lost and come back, each always in the same pool: one that comes back in another pool while
        replicas are there has them moved, and a move takes its room without a look at the lines.
        """
        number = self.random.randint(0, 5)
        pool = "train" if number % 3 else "extra"
        arrives = joined(f"n{number}", 4, pool=pool, position=Position(leaf=f"leaf-{number % 2}"))
        self.settle(self.random.choice((arrives, arrives, lost(f"n{number}"))))


def holdings(world: World) -> dict[str, object]:
    return {
        job.id: (job.status, job.attempt, job.workers, job.leaving, job.done, job.runs)
        for job in world.state.jobs.values()
    }


@given(st.integers(0, 10**9), lengths(ROUNDS))
def test_a_new_writer_comes_to_the_workers_of_the_one_before(seed: int, rounds: int) -> None:
    twins = Twins(Random(seed))
    lacks = False
    twins.settle(*NODES)
    for _ in range(rounds):
        twins.one_round()
        assert holdings(twins.worlds[0]) == holdings(twins.worlds[1])
        lacks |= any(0 < len(job.workers) < job.spec.workers for job in twins.jobs)
    reaches("a job runs with a part of its workers when a writer takes over", lacks)


def test_the_property_is_about_something() -> None:
    twins = Twins(Random(11))
    twins.settle(*NODES)
    for _ in range(10 * ROUNDS):
        twins.one_round()
    assert holdings(twins.worlds[0]) == holdings(twins.worlds[1])
    effects = [effect for decision in twins.worlds[0].decisions for effect in decision.effects]
    assert sum(len(getattr(effect, "add", ())) for effect in effects) > 20
    assert len(twins.worlds[0].state.finished) > 10
