"""The property of lines where quota is lent and borrowed: a walk along classes makes the same starts."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given

from fallow.services.placement.requests.arrays import may_start_one_more
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, Tenant, TenantQuota
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.node import bits
from fallow.shared.cluster.quota.kept_places import NOTHING_KEPT
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobSpec, NodeStatus
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import ReclaimFrom, SetPolicy, SetQuota
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.hypothesis_profile import Story, reaches, stories
from tests.placement.oracles.naive_keeping import JudgedWorld, kept_for
from tests.placement.oracles.oracle import (
    LinesWorld,
    NaiveWorld,
    could_ever_start,
    may_ever_use,
    waits_for_closed,
    waits_for_maintenance,
)
from tests.placement.properties.test_lines_property import FILE as PLAIN
from tests.placement.properties.test_lines_property import SMALL_ROUNDS, Twins, live_alike
from tests.placement.worlds.world import CELL

FILE = CellFile(
    cells=PLAIN.cells,
    tenants=(
        Tenant(name="lab", quotas=(TenantQuota(guaranteed=7, borrow_limit=3),)),
        Tenant(name="ada", parent="lab", quotas=(TenantQuota(guaranteed=3, lend_limit=1),)),
        Tenant(name="bob", parent="lab", quotas=(TenantQuota(guaranteed=2, limit=6, borrow_limit=3, weight=2),)),
        Tenant(name="dan", parent="lab"),
        Tenant(name="eve", quotas=(TenantQuota(guaranteed=2, lends=False),)),
        Tenant(name="fay", quotas=(TenantQuota(guaranteed=1, weight=3),)),
        Tenant(name="gus", quotas=(TenantQuota(weight=0),)),
    ),
)


QUOTA_SEEDS = (
    42_000_441,
    *(7_152, 7_221, 7_345, 20_001, 20_153, 20_427, 600_026, 600_371, 656_268),
    *(5_000_144, 5_000_649, 5_000_743, 5_000_814),
)
KEEPING_SEEDS = (
    *(7_108, 7_112, 7_124, 7_166, 20_100, 600_371, 656_268, 4_400_641, 5_000_144, 5_000_307),
    *(5_000_751, 5_000_778, 5_000_822, 6_000_288, 7_499_951),
)
MIXED_SEEDS = (9_500_080, 31_000_198, 31_000_212, 31_000_242, 31_000_420, 32_000_405, 67_108_863)
"""Worlds in which a walk along classes once came to other starts than one over all jobs."""


class QuotaTwins(Twins):
    """Twins whose tenants have guarantees, and some of whose jobs may not be preempted."""

    file = FILE

    def by_lines(self) -> LinesWorld:
        return JudgedWorld(self.file)

    def all_seeing(self) -> NaiveWorld:
        return KeepingNaive(self.file)

    def spec(self) -> JobSpec:
        return replace(super().spec(), preemptible=self.random.random() < 0.8)

    def wait(self) -> None:
        """Another tenant may lend, or borrow, or has another guarantee."""
        quota = self.random.choice(FILE.quotas())
        switch = {"lends": self.random.random() < 0.5, "borrows": self.random.random() < 0.8}
        limit = self.random.choice((None, quota.guaranteed_milli, 3 * quota.guaranteed_milli))
        changed = replace(quota, limit_milli=limit, **switch)
        self.settle(SetQuota(cell=CELL, quotas=(changed,)))
        super().wait()


@pytest.mark.parametrize("seed", [40, 299])
def test_a_job_that_may_start_does_not_wait(seed: int) -> None:
    assert live_alike(QuotaTwins(Random(seed)))


@given(stories(SMALL_ROUNDS))
def test_a_walk_along_classes_leads_to_the_starts_of_a_walk_over_all_jobs(story: Story) -> None:
    twins = QuotaTwins(story).small()
    assert live_alike(twins)
    reaches("jobs of tenants with guarantees wait beside jobs that run", is_busy(twins))
    assert twins.naive.state.quotas


class KeepingNaive(NaiveWorld):
    """Looks at each job, and keeps what is guaranteed to those who wait: places, `times_kept` in how many walks."""

    times_kept = 0

    def settle(self, *events: Event) -> None:
        """Walk all queues again and again, until nobody starts: who has started needs nothing kept any more."""
        self.tell(*events)
        for _ in range(100):
            before = len(self.log)
            super().settle()
            if len(self.log) == before:
                return
        raise AssertionError("it does not come to rest")

    def _walk_all(self) -> bool:
        self._note()
        return super()._walk_all()

    def _note(self) -> None:
        """Who could start now: in a strict line the first one only."""
        ready = list[Job]()
        for queue in self._part.queues:
            lines: dict[str, list[Job]] = {}
            for job in self._line(queue):
                lines.setdefault(job.spec.tenant if queue.order is QueueOrder.FAIR_SHARE else "", []).append(job)
            for line in lines.values():
                able = [job for job in line if could_ever_start(self, job.spec) and may_ever_use(self, job.spec)]
                able = [job for job in able if may_start_one_more(self.state, job.spec)]
                able = [job for job in able if not waits_for_closed(self, job.spec)]
                is_strict = queue.discipline is QueueDiscipline.STRICT_FIFO
                for job in able[:1] if is_strict else able:
                    if waits_for_maintenance(self, job.spec):
                        continue
                    if is_strict and queue.order is QueueOrder.FAIR_SHARE and not self._is_sure(job, job.spec.tenant):
                        continue
                    ready.append(job)
        self.state.tree.kept = NOTHING_KEPT
        self.state.tree.kept = kept_for(self.state, ready)
        self._judge_kept()

    def _judge_kept(self) -> None:
        """What is kept is free, on nodes that take new work, kept once, and no more than is idle of the guarantee."""
        self.times_kept += bool(self.state.tree.kept.nodes)
        free, by_owner = Counter[str](), Counter[Account]()
        for kept in self.state.tree.kept.all:
            by_owner.update({} if kept.is_more else dict(kept.owners))
            for place in kept.places:
                free[place.node] += place.milli
            assert sum(place.milli for place in kept.places) <= max(milli for _, milli in kept.owners), kept
        for node_id, milli in free.items():
            node = self.state.nodes[node_id]
            assert node.status is NodeStatus.READY, node
            assert milli <= GPU * (node.spec.gpus - len(bits(node.failed))) - node.allocated_milli, node
        for (tenant, gpu_type), milli in by_owner.items():
            account = (tenant, gpu_type)
            assert milli <= self._guaranteed(tenant) - self.state.usage.get(account, 0), account


class KeepingTwins(QuotaTwins):
    """Twins whose tenants may take back from some what they lent, or from nobody: nothing is carried out of that."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        reclaims = [random.choice(list(ReclaimFrom)) for _ in FILE.quotas()]
        quotas = tuple(replace(quota, reclaim=each) for quota, each in zip(FILE.quotas(), reclaims, strict=True))
        self.settle(SetQuota(cell=CELL, quotas=quotas))


def times_kept(twins: Twins) -> int:
    """In how many walks something was kept for owners."""
    assert isinstance(twins.naive, KeepingNaive)
    return twins.naive.times_kept


def is_busy(twins: Twins) -> bool:
    """Whether jobs wait, and others run."""
    return bool(twins.live(holding=True)) and bool(twins.live(holding=False))


def test_an_owner_that_may_start_does_not_wait() -> None:
    assert live_alike(KeepingTwins(Random(1313)))


def test_a_head_whose_reason_has_changed_keeps_back_what_the_new_reason_says() -> None:
    """When its class was tried last it was at a limit; now it waits for room."""
    assert live_alike(QuotaTwins(Random(7_000)))


@pytest.mark.parametrize("seed", QUOTA_SEEDS)
def test_worlds_in_which_walks_once_came_to_other_starts(seed: int) -> None:
    assert live_alike(QuotaTwins(Random(seed)))


@pytest.mark.parametrize("seed", KEEPING_SEEDS)
def test_worlds_with_owners_in_which_they_once_did(seed: int) -> None:
    assert live_alike(KeepingTwins(Random(seed)))


@given(stories(SMALL_ROUNDS))
def test_it_does_so_whatever_owners_may_reclaim(story: Story) -> None:
    twins = KeepingTwins(story).small()
    assert live_alike(twins)
    reaches("places are kept for owners that wait", times_kept(twins))
    assert twins.naive.state.quotas


class MixedTwins(KeepingTwins):
    """Twins in cells of any placement policy, and of nodes of which some have few CPUs, with many jobs that differ from
    the one before in one thing only.
    """

    FIELDS = (
        "tenant",
        "priority",
        "queue",
        "pools",
        "workers",
        "resources",
        "preemptible",
        "node_labels",
        "tolerations",
    )

    def __init__(self, random: Random) -> None:
        self._last: JobSpec | None = None
        super().__init__(random)
        placement, patience_ms = random.choice(list(POLICIES)), random.choice((0, 30, 60, 200))
        policy = replace(self.naive.state.policy, placement=placement, backfill_wait_ms=patience_ms)
        self.settle(SetPolicy(cell=CELL, policy=policy))

    def take_over(self) -> None:
        """What the policy `frag-aware` learned of jobs is its writer's own, and the next one learns it anew: it may
        choose other nodes.
        """
        if self.naive.state.policy.placement != "frag-aware":
            super().take_over()

    def spec(self) -> JobSpec:
        """Half of them are like the one before but for one thing."""
        fresh, last = super().spec(), self._last
        if last is not None and self.random.random() < 0.5:
            field = self.random.choice(self.FIELDS)
            fresh = replace(last, id=fresh.id, after=fresh.after, **{field: getattr(fresh, field)})
        self._last = fresh
        return fresh


@pytest.mark.parametrize("seed", MIXED_SEEDS)
def test_worlds_of_every_policy_in_which_they_once_did(seed: int) -> None:
    assert live_alike(MixedTwins(Random(seed)))


@given(stories(SMALL_ROUNDS))
def test_it_does_so_under_every_policy_with_jobs_that_differ_in_one_thing(story: Story) -> None:
    twins = MixedTwins(story).small()
    assert live_alike(twins)
    reaches("under a policy of any kind places are kept for owners that wait", times_kept(twins))


class WideTwins(MixedTwins):
    """The same where jobs also need memory, and some say how long they run at most."""

    def __init__(self, random: Random) -> None:
        self.more, self.drawn = Random(random.random()), Counter[str]()
        super().__init__(random)

    def settle(self, *events: Event) -> None:
        """Nodes have memory for all that they could run, or for one or two workers."""
        super().settle(*(self._with_memory(event) for event in events))

    def _with_memory(self, event: Event) -> Event:
        if not isinstance(event, NodeJoined):
            return event
        memory_mib = self.more.choice((5_000, 64_000))
        return replace(event, spec=replace(event.spec, memory_mib=memory_mib))

    def spec(self) -> JobSpec:
        spec = super().spec()
        memory_mib = self.more.choice((0, 0, 1_000, 3_000))
        max_run_ms = self.more.choice((None, None, 40, 10_000))
        self.drawn["with memory"] += bool(memory_mib)
        self.drawn["with a limit of its run"] += max_run_ms is not None
        resources = replace(spec.resources, memory_mib=memory_mib)
        return replace(spec, resources=resources, max_run_ms=max_run_ms)


@given(stories(SMALL_ROUNDS))
def test_it_does_so_where_jobs_need_memory_and_say_how_long_they_run_at_most(story: Story) -> None:
    twins = WideTwins(story).small()
    assert live_alike(twins)
    reaches("jobs that need memory wait beside jobs that run", is_busy(twins))


def test_such_jobs_are_often_drawn() -> None:
    twins = WideTwins(Random(1))
    for _ in range(100):
        twins.spec()
    assert min(twins.drawn["with memory"], twins.drawn["with a limit of its run"]) > 30, twins.drawn
