"""THE property of lines: a placement that walks along classes makes the starts of one that tries every job."""

from __future__ import annotations

from random import Random
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.capacity.closed_idle import ClosedIdle, closed_idle
from fallow.shared.cluster.capacity.taken_alone import TakenAlone, taken_alone
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.cluster.model.job import HOLDING, WAITING, Job, JobStatus
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, AfterWhen, Dependency, JobSpec, Resources, RetryPolicy
from fallow.shared.events.operations import CellPolicy, HoldJob, PlanMaintenance, ReleaseJob, SetPolicy
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.oracles.oracle import LinesWorld, NaiveWorld
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    failed,
    finished,
    joined,
    lost,
    report,
    set_policy,
    started,
    stopped,
    update,
)

FAIR = QueueOrder.FAIR_SHARE
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=(Pool(name="train", gpus=100), Pool(name="extra", gpus=100)),
            queues=(
                Queue(name="first", discipline=QueueDiscipline.STRICT_FIFO),
                Queue(name="default"),
                Queue(name="last", discipline=QueueDiscipline.BACKFILL),
                Queue(name="aged", aging_ms=30, aging_max_ms=50),
                Queue(name="fair", order=FAIR, aging_ms=10, aging_max_ms=30),
                Queue(name="fair-strict", order=FAIR, discipline=QueueDiscipline.STRICT_FIFO),
                Queue(name="fair-backfill", order=FAIR, discipline=QueueDiscipline.BACKFILL),
                Queue(name="night"),
            ),
            policy=CellPolicy(backfill_wait_ms=60, fair_half_life_ms=160),
        ),
    ),
    tenants=(
        Tenant(name="ada", quotas=(TenantQuota(limit=9),)),
        Tenant(name="bob", parent="ada", quotas=(TenantQuota(limit=6, weight=2),)),
        Tenant(name="dan", parent="ada"),
        Tenant(name="eve"),
        Tenant(name="fay", quotas=(TenantQuota(weight=3),)),
        Tenant(name="gus", quotas=(TenantQuota(weight=0),)),
    ),
)
ROUNDS, SMALL_ROUNDS = 14, 8
AT_ONCE_MAX, SMALL_AT_ONCE_MAX = 12, (5, 5, 12)
ROUNDED_MAX = 8
"""So many milli-GPU-milliseconds what a tenant used may differ in two worlds with the same starts."""
QUEUES: tuple[tuple[str, ...], ...] = (
    ("first", "default", "default", "last"),
    ("aged",),
    ("default", "aged"),
    ("fair",),
    ("fair", "night"),
    ("fair-strict",),
    ("fair-backfill",),
    ("first", "fair", "fair-strict", "night"),
)
TENANTS = (("ada", "bob", "eve", "eve"), ("ada", "bob", "dan", "eve", "fay"), ("eve", "fay", "gus"))
NODES = (
    joined("n1", 4, cpu_milli=9_000, labels={"zone": "a"}),
    joined("n2", 4, cpu_milli=9_000, pool="extra", labels={"zone": "b"}),
    joined("n3", 2, cpu_milli=9_000, taints=("hot",)),
)


class Twins:
    """The same things happen to three worlds: one goes by its lines, one does so with a new writer now and then, and
    one looks at everything.
    """

    file = FILE

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines, self.heir, self.naive = self.by_lines(), self.by_lines(), self.all_seeing()
        self.worlds: tuple[LinesWorld | NaiveWorld, ...] = (self.lines, self.heir, self.naive)
        self.submitted, self.at_once_max, self.rounds = 0, AT_ONCE_MAX, ROUNDS
        self.has_heirs, self.checked = True, range(0)
        self.queues, self.tenants = random.choice(QUEUES), random.choice(TENANTS)
        self.is_choosy = random.choice((False, True))

    def small(self) -> Self:
        """Fewer rounds, mostly of fewer jobs, and two worlds: the one that goes by its lines has a new writer now and
        then in half of all examples. Both are checked behind one of the rounds, not at each decision.
        """
        self.heir, self.worlds = self.lines, (self.lines, self.naive)
        self.at_once_max, self.rounds = self.random.choice(SMALL_AT_ONCE_MAX), SMALL_ROUNDS
        self.has_heirs, round_ = self.random.random() < 0.5, self.random.randrange(SMALL_ROUNDS)
        self.checked = range(round_, round_ + 1)
        for world in self.worlds:
            world.checks = False
        return self

    def by_lines(self) -> LinesWorld:
        return LinesWorld(self.file)

    def all_seeing(self) -> NaiveWorld:
        return NaiveWorld(self.file)

    def round_alike(self) -> None:
        """What tenants used is rounded once for each decision, and the one that looks at everything decides what comes
        of inputs and who starts one after the other: else the last digit would tell which of two shares is smaller.
        """
        ours, theirs, now_ms = self.lines.state.fair, self.naive.state.fair, self.naive.now_ms
        for account in {**ours.used, **theirs.used}:
            assert abs(ours.of(account, now_ms) - theirs.of(account, now_ms)) <= ROUNDED_MAX, account
        for state in (self.naive.state, self.naive.twin):
            state.fair.used, state.fair.held = dict(ours.used), dict(ours.held)

    def live(self, *, holding: bool) -> list[Job]:
        statuses = HOLDING if holding else WAITING
        jobs = sorted(self.naive.state.jobs.values(), key=lambda job: job.id)
        return [job for job in jobs if job.status in statuses]

    def settle(self, *events: Event) -> None:
        for world in self.worlds:
            world.settle(*events)

    def be_patient(self) -> None:
        """Where tenants take turns, who is first changes with each walk, and whoever was a head once stays one: how
        long heads have waited depends on how often there was a walk, and must keep nobody back here.
        """
        if "fair-backfill" in self.queues:
            policy = replace(self.naive.state.policy, backfill_wait_ms=10**9)
            self.settle(SetPolicy(cell=CELL, policy=policy))

    def one_round(self) -> None:
        """Something that reorders, or something that makes room: one after the other, not both at once."""
        often, seldom = (self.submit, self.finish), (self.fail, self.change, self.nodes, self.wait, self.confirm)
        self.random.choice(often * 2 + seldom)()
        if self.random.random() < 0.2:
            self.take_over()

    def take_over(self) -> None:
        """Another writer takes over in one of the worlds."""
        if self.has_heirs:
            self.heir.restart()

    def submit(self) -> None:
        self.settle(*(admitted(self.spec(), self.submit_ms()) for _ in range(self.random.randint(1, self.at_once_max))))

    def submit_ms(self) -> int:
        return self.naive.now_ms + 100 - self.random.choice((0, 0, 20, 50, 100))

    def spec(self) -> JobSpec:
        self.submitted += 1
        return JobSpec(
            id=f"job-{self.random.randint(0, 9)}{self.submitted:04}",
            tenant=self.random.choice(self.tenants),
            priority=self.random.choice((0, 0, 1, 2, -3)),
            queue=self.random.choice(self.queues),
            pools=self.random.choice(((), ("train",), ("extra", "train"))),
            workers=self.random.choice((1, 1, 1, 2, 3)),
            resources=Resources(gpu_milli=self.random.choice((500, GPU, GPU, 2 * GPU, 4 * GPU)), cpu_milli=100),
            retry=RetryPolicy(budget=1, backoff_ms=self.random.choice((0, 50))),
            not_before_ms=self.naive.now_ms + self.random.choice((0, 20, 60)) if self.random.random() < 0.1 else None,
            estimate_run_ms=self.random.choice((None, None, 20, 70)),
            after=self.some_to_wait_for() if self.random.random() < 0.2 else (),
            array=4 if (is_array := self.random.random() < 0.25) else None,
            array_max_running=self.random.choice((None, 1, 2)) if is_array else None,
            **self.some_nodes_only() if self.is_choosy else {},
        )

    def some_nodes_only(self) -> dict[str, Any]:
        """What keeps a job off some of the nodes."""
        return {
            "node_labels": self.random.choice(((), (), ("zone=a",), ("zone!=a",))),
            "tolerations": self.random.choice(((), ("hot",))),
            "exclusive": self.random.random() < 0.2,
        }

    def some_to_wait_for(self) -> tuple[Dependency, ...]:
        known = [*self.live(holding=True), *self.live(holding=False)]
        chosen = self.random.sample(known, min(len(known), self.random.randint(1, 3)))
        return tuple(Dependency(job=job.id, when=self.random.choice(list(AfterWhen))) for job in chosen)

    def finish(self) -> None:
        """Some attempts end well; some waiting jobs are cancelled."""
        events: list[Event] = []
        for job in self.live(holding=True):
            if job.status is not JobStatus.STOPPING and self.random.random() < 0.5:
                events += [finished(job.id, node, job.attempt) for node in job.runs]
        events += [cancel(job.id, job.spec.tenant) for job in self.live(holding=False) if self.random.random() < 0.2]
        self.settle(*events)

    def fail(self) -> None:
        """Some attempts end badly, and some that were told to stop have stopped."""
        events: list[Event] = []
        for job in self.live(holding=True):
            if job.status is JobStatus.STOPPING or self.random.random() < 0.2:
                ends = stopped if job.status is JobStatus.STOPPING else failed
                events += [ends(job.id, node, job.attempt) for node in job.runs]
        self.settle(*events)

    def change(self) -> None:
        """Priorities, holds and releases: of a strict queue they may make room and reorder at once."""
        events: list[Event] = []
        for job in self.live(holding=False):
            kind = self.random.randint(0, 5)
            if kind == 0:
                events.append(update(job.id, job.spec.tenant, priority=self.random.randint(0, 2)))
            elif kind == 1:
                events.append(self.random.choice((HoldJob, ReleaseJob))(cell=CELL, job=job.id))
        self.settle(*events)

    def nodes(self) -> None:
        """A node comes, goes or returns."""
        node, pool = f"n{self.random.randint(1, 6)}", self.random.choice(("train", "extra"))
        if self.random.random() < 0.3:
            begin_ms = self.naive.now_ms + self.random.choice((30, 60, 90))
            self.settle(PlanMaintenance(cell=CELL, node=node, begin_ms=begin_ms, end_ms=begin_ms + 60))
            return
        arrives = joined(node, self.random.choice((2, 4)), pool=pool, cpu_milli=self.random.choice((350, 9_000)))
        self.settle(self.random.choice((arrives, arrives, lost(node), report(node))))

    def confirm(self) -> None:
        """Nodes say that runs have started."""
        starting = [job for job in self.live(holding=True) if job.status is JobStatus.STARTING]
        said = [job for job in starting if self.random.random() < 0.5]
        self.settle(*(started(job.id, node, job.attempt) for job in said for node in job.runs))

    def wait(self) -> None:
        """Pauses of failed jobs end, and what was used counts less."""
        later_ms = self.random.choice((30, 30, 200))
        for world in self.worlds:
            world.now_ms += later_ms
        # The end of maintenance makes room when pauses end, and a tick may put another tenant first.
        self.settle()


def starts(world: World) -> dict[str, tuple[object, ...]]:
    return {job.id: (job.status, job.attempt, job.workers) for job in world.state.jobs.values()}


def live_alike(twins: Twins) -> bool:
    """Whether all came to the same starts in each round."""
    twins.be_patient()
    twins.settle(*NODES)
    for number in rounds_of(twins.random, twins.rounds):
        twins.one_round()
        assert starts(twins.lines) == starts(twins.naive)
        assert starts(twins.heir) == starts(twins.lines)
        if number in twins.checked:
            for world in twins.worlds:
                world.check()
        twins.round_alike()
    twins.lines.check()
    state = twins.lines.state
    for pool in state.pools.values():
        anew = ClosedIdle(state.nodes[node] for node in pool.ids)
        by_delta = closed_idle(state, pool)
        assert (by_delta.milli, by_delta.alone_milli) == (anew.milli, anew.alone_milli)
    assert taken_alone(state) == TakenAlone(state.jobs, state.nodes.values()).by_account
    return True


@given(stories(ROUNDS))
def test_a_walk_along_classes_leads_to_the_starts_of_a_walk_over_all_jobs(story: Story) -> None:
    twins = Twins(story)
    assert live_alike(twins)
    reaches("jobs wait in lines beside jobs that run", twins.live(holding=True) and twins.live(holding=False))


@pytest.mark.parametrize("seed", [298_485_702, 9_000_643, 42_000_893])
def test_worlds_in_which_walks_once_came_to_other_starts(seed: int) -> None:
    assert live_alike(Twins(Random(seed)))


@given(stories(SMALL_ROUNDS), st.integers(1, 4))
def test_so_it_does_where_nodes_take_only_so_much_unconfirmed(story: Story, most: int) -> None:
    twins = unconfirmed(Twins(story).small(), most)
    assert live_alike(twins)
    starting = [job for job in twins.live(holding=True) if job.status is JobStatus.STARTING]
    reaches("jobs wait beside jobs that nodes have not confirmed", starting and twins.live(holding=False))


def unconfirmed(twins: Twins, most: int) -> Twins:
    """The same where no node takes more starts than so many that it has not confirmed."""
    twins.settle(set_policy(backfill_wait_ms=60, fair_half_life_ms=160, max_unacknowledged_starts_per_node=most))
    return twins


def test_a_world_of_unconfirmed_starts_in_which_walks_once_came_to_other_ones() -> None:
    assert live_alike(unconfirmed(Twins(Random(298_485_702)), 3))


@pytest.mark.parametrize("queues", QUEUES)
def test_the_property_is_about_something(queues: tuple[str, ...]) -> None:
    twins = Twins(Random(7))
    twins.queues, twins.is_choosy = queues, False
    twins.settle(*NODES[:2])
    most = 0
    for _ in range(8 * ROUNDS):
        twins.one_round()
        most = max(most, twins.naive.state.waiting)
    assert most > 20
    assert len(twins.naive.state.finished) > 20
