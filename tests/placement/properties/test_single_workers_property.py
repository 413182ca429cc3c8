"""Jobs that are no gangs, beside gangs: a writer that takes over gives them the workers that the one before would, also
beside guarantees, by shares, and where nodes close and GPUs break.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from hypothesis import given

from fallow.services.placement.fit.empty_capacity import full_of_own
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.events import nodes as n
from fallow.shared.events.base import Event
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, Level, Position, Resources, RetryPolicy, RunStatus
from fallow.shared.events.operations import CellPolicy, Cordon, Uncordon
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.worlds.replicas import word
from tests.placement.worlds.world import CELL, World, admitted, cancel, failed, finished, joined, lost, stopped, update

ROUNDS = 16
QUEUES = ("strict", "best", "fill")
LIMITS = (Tenant(name="ada", quotas=(TenantQuota(limit=9),)), Tenant(name="bob"))
GUARANTEES = (
    Tenant(name="lab", quotas=(TenantQuota(guaranteed=10),)),
    Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=3, limit=9),)),
    Tenant(name="bob", parent="lab", quotas=(TenantQuota(guaranteed=2, weight=3),)),
    Tenant(name="eve"),
)


def file_of(tenants: tuple[Tenant, ...], order: QueueOrder, backfill_wait_ms: int) -> CellFile:
    """A cell of these tenants with a queue of each discipline."""
    cell = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100)),
        queues=(
            Queue(name="strict", discipline=QueueDiscipline.STRICT_FIFO, order=order),
            Queue(name="best", order=order),
            Queue(name="fill", discipline=QueueDiscipline.BACKFILL, order=order),
        ),
        policy=CellPolicy(backfill_wait_ms=backfill_wait_ms),
    )
    return CellFile(cells=(cell,), tenants=tenants)


NODES = tuple(
    joined(f"n{number}", 4, pool="train" if number % 3 else "extra", position=Position(leaf=f"leaf-{number % 2}"))
    for number in range(4)
)


class Twins:
    """The same things happen to a placement that goes on and to one whose writer changes now and then."""

    world: ClassVar = World

    def __init__(self, random: Random) -> None:
        self.random, self.submitted = random, 0
        self.reached = dict[str, bool]()
        tenants = random.choice((LIMITS, GUARANTEES, GUARANTEES))
        self.tenants = [tenant.name for tenant in tenants if tenant.name != "lab"]
        order, wait_ms = random.choice((QueueOrder.FIFO, QueueOrder.FAIR_SHARE)), random.choice((1, 1, 1, 1_800_000))
        file = file_of(tenants, order, wait_ms)
        self.worlds = (self.world(file), self.world(file))

    @property
    def jobs(self) -> list[Job]:
        return sorted(self.worlds[1].state.jobs.values(), key=lambda job: job.id)

    def settle(self, *events: Event) -> None:
        for world in self.worlds:
            world.tell(*events)

    def one_round(self) -> None:
        often = (self.submit, self.hear)
        self.random.choice((*often, *often, self.hear, self.change, self.nodes, self.close, self.wait))()
        if self.random.random() < 0.3:
            self.worlds[0].restart()
        self.look()

    def look(self) -> None:
        """Note what the worlds have come to, of what the property is about."""
        state = self.worlds[1].state
        lacking = [job for job in self.jobs if 0 < len(job.workers) < job.spec.workers]
        branches = [state.tree.branches.get((job.spec.tenant, "gpu")) for job in lacking if not job.spec.gang]
        found = {
            "a job runs with a part of its workers when a writer takes over": bool(lacking),
            "a job that runs lacks workers that are guaranteed to its tenant": any(
                branch is not None and branch.idle_milli for branch in branches
            ),
            "places are kept for an owner when a writer takes over": any(kept.places for kept in state.tree.kept.all),
            "the own workers of a job fill one of its nodes": any(full_of_own(state, job) for job in lacking),
            "a head has waited for so long that nothing passes it": any(
                state.clock_ms - since_ms >= state.policy.backfill_wait_ms for since_ms in state.heads.values()
            ),
        }
        self.reached = {what: is_now or self.reached.get(what, False) for what, is_now in found.items()}

    def submit(self) -> None:
        self.settle(*(admitted(self.spec(), self.random.randint(0, 50)) for _ in range(self.random.randint(1, 4))))

    def spec(self) -> JobSpec:
        self.submitted += 1
        workers, kind = self.random.choice((1, 2, 3, 4)), self.random.choice((*JobKind, *JobKind, None))
        return JobSpec(
            id=f"job-{self.submitted:03}",
            tenant=self.random.choice(self.tenants),
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

    def close(self) -> None:
        """Nodes are closed and opened, or one of their GPUs breaks."""
        node = f"n{self.random.randint(0, 3)}"
        broken = n.DeviceFailed(cell=CELL, node=node, boot="boot-1", seq=0, device=self.random.randint(0, 3))
        opened = Uncordon(cell=CELL, node=node)
        self.settle(self.random.choice((Cordon(cell=CELL, node=node), opened, opened, broken)))

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


@given(stories(ROUNDS))
def test_a_new_writer_comes_to_the_workers_of_the_one_before(story: Story) -> None:
    twins = Twins(story)
    twins.settle(*NODES)
    for _ in rounds_of(story, ROUNDS):
        twins.one_round()
        assert holdings(twins.worlds[0]) == holdings(twins.worlds[1])
    for what, is_reached in twins.reached.items():
        reaches(what, is_reached)


def test_the_property_is_about_something() -> None:
    twins = Twins(Random(11))
    twins.settle(*NODES)
    for _ in range(10 * ROUNDS):
        twins.one_round()
    assert holdings(twins.worlds[0]) == holdings(twins.worlds[1])
    effects = [effect for decision in twins.worlds[0].decisions for effect in decision.effects]
    assert sum(len(getattr(effect, "add", ())) for effect in effects) > 20
    assert len(twins.worlds[0].state.finished) > 10
