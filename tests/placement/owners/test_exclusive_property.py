"""THE property of guarantees that are not lent: whoever starts, alone on its nodes or not, what owners have left of
them stays idle where they can use it; and nobody waits for them who would take none of it.

The oracle counts node by node, and for each tenant what its jobs take: what they hold, or all healthy GPUs of the nodes
that they have alone. It looks at each GPU: one may break under a job that runs on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given

from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.job import HOLDING, Job, JobStatus
from fallow.shared.cluster.model.node import Node
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import Cordon, Quota, Uncordon
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, report, set_policy, set_quotas

TENANTS = ("ada", "bob", "eve")
ROUNDS = 25
FILE = CellFile(
    cells=(CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=200), Pool(name="extra", gpus=200))),),
    tenants=tuple(Tenant(name=name) for name in TENANTS),
)


@dataclass
class Count:
    """What is idle on nodes where anybody may start, and what each owner has left of what it does not lend."""

    idle: int
    left: dict[str, int]

    @property
    def holds(self) -> bool:
        left = sum(self.left.values())
        return not left or self.idle >= left


def healthy(node: Node) -> int:
    return sum(1 for device in range(node.spec.gpus) if not node.failed >> device & 1) * GPU


def holders(world: World, node: Node) -> list[Job]:
    """The jobs that have workers on a node."""
    return [job for job in world.state.jobs.values() if any(place.node == node.id for place in places_of(job))]


def places_of(job: Job) -> tuple[WorkerPlace, ...]:
    return (*job.workers, *job.joining)


def idle(world: World, node: Node) -> int:
    """What nobody uses of each healthy GPU: that of a broken one is used or not, and is nobody's to have."""
    places = [place for job in holders(world, node) for place in places_of(job) if place.node == node.id]
    found = 0
    for device in range(node.spec.gpus):
        on_it = [place for place in places if device in place.devices]
        used = sum(min(GPU, place.gpu_milli) for place in on_it)
        found += 0 if node.failed >> device & 1 else GPU - used
    return found


def is_open(world: World, node: Node) -> bool:
    is_ready = node.status is NodeStatus.READY and not node.silent_wall_ms and node.offered is None
    return is_ready and not any(job.spec.exclusive for job in holders(world, node))


def count(world: World, *, more: tuple[str, int] = ("", 0)) -> Count:
    """As the cell is, if a tenant had so many GPUs `more` of those that are idle."""
    taken = dict.fromkeys(TENANTS, 0)
    for node in world.state.nodes.values():
        for job in holders(world, node):
            mine = sum(place.gpu_milli for place in places_of(job) if place.node == node.id)
            taken[job.spec.tenant] += mine + idle(world, node) if job.spec.exclusive else mine
    open_nodes = [node for node in world.state.nodes.values() if is_open(world, node)]
    idle_milli = sum(idle(world, node) for node in open_nodes) - more[1]
    quotas = {tenant: quota for (tenant, _), quota in world.state.quotas.items()}
    left = dict.fromkeys(TENANTS, 0)
    for name, quota in quotas.items():
        lent = quota.lend_limit_milli if quota.lends else 0
        home = 0 if lent is None else max(0, quota.guaranteed_milli - lent)
        left[name] = max(0, home - taken[name] - (more[1] if more[0] == name else 0))
    return Count(idle_milli, left)


class Cell:
    """One cell in which something happens again and again."""

    def __init__(self, random: Random) -> None:
        self.random, self.submitted, self.reached = random, 0, Counter[str]()
        self.world = World(FILE)
        nodes = [self._node(number) for number in range(random.randint(2, 5))]
        gpus = sum(node.spec.gpus for node in nodes)
        self.world.tell(*nodes, set_policy(placement=random.choice(sorted(POLICIES))))
        sure = [random.randint(0, gpus // 2) for _ in TENANTS[:2]]
        self.world.tell(set_quotas(*(self._quota(name, most) for name, most in zip(TENANTS, sure, strict=False))))

    def _node(self, number: int) -> NodeJoined:
        pool, gpus = self.random.choice(("train", "extra")), self.random.choice((1, 2, 3, 4, 6, 8))
        return joined(f"n{number}", gpus, pool=pool, cpu_milli=9_000)

    def _quota(self, tenant: str, guaranteed: int) -> Quota:
        lends, lent = self.random.choice(((False, None), (False, None), (True, guaranteed // 2 * GPU), (True, None)))
        sure_milli = guaranteed * GPU
        return Quota(tenant=tenant, gpu_type="gpu", guaranteed_milli=sure_milli, lends=lends, lend_limit_milli=lent)

    def go(self) -> None:
        """Something happens. Starts and ends leave owners what is theirs, whatever else happened before."""
        chance = self.random.random()
        before, ran = count(self.world), self._running()
        if chance < 0.55:
            self.world.tell(*(admitted(self._job()) for _ in range(self.random.randint(1, 3))))
        elif chance < 0.85:
            self._end()
        else:
            self._change_a_node()
            return
        # What ends on a node that is closed, or on a GPU that is broken, gives its owner back what is idle nowhere.
        nodes = self.world.state.nodes.values()
        is_judged = chance < 0.55 or all(node.status is NodeStatus.READY and not node.failed for node in nodes)
        if before.holds and is_judged:
            after = count(self.world)
            assert after.holds, (before, after)
            self._note([job for job in self._running().values() if job.id not in ran], before.left)

    def _running(self) -> dict[str, Job]:
        return {job.id: job for job in self.world.state.jobs.values() if job.status in HOLDING}

    def _note(self, started: list[Job], left: dict[str, int]) -> None:
        """Which of these starts, that were judged, could have taken what is left of others."""
        for spec in (job.spec for job in started):
            if any(milli for name, milli in left.items() if name != spec.tenant):
                self.reached["starts"] += 1
                self.reached["starts alone"] += spec.exclusive
                self.reached["starts alone of several workers"] += spec.exclusive and spec.workers > 1

    def _job(self) -> JobSpec:
        self.submitted += 1
        random, is_gang = self.random, self.random.random() < 0.7
        is_service, workers = not is_gang and random.random() < 0.4, random.choice((1, 1, 1, 2, 3, 5, 8))
        return JobSpec(
            id=f"job-{self.submitted}",
            tenant=random.choice(TENANTS),
            workers=workers,
            workers_min=random.choice((None, 1, workers)) if is_service else None,
            resources=Resources(gpu_milli=random.choice((500, GPU, GPU, 2 * GPU, 4 * GPU)), cpu_milli=100),
            exclusive=random.random() < 0.5,
            preemptible=random.random() < 0.9,
            gang=is_gang,
            kind=JobKind.INFERENCE if is_service else JobKind.TRAINING,
            pools=random.choice(((), ("train",), ("extra", "train"))),
        )

    def _end(self) -> None:
        for job in self._running().values():
            if self.random.random() < 0.5:
                for node in dict.fromkeys(place.node for place in job.workers):
                    self.world.tell(finished(job.id, node, job.attempt))

    def _change_a_node(self) -> None:
        node = self.random.choice(list(self.world.state.nodes.values()))
        if self.random.random() < 0.5:
            is_shut = node.status is NodeStatus.CORDONED
            self.world.tell((Uncordon if is_shut else Cordon)(cell=CELL, node=node.id))
        else:
            self.world.tell(report(node.id, failed=(0,) if self.random.random() < 0.5 else ()))

    def nobody_waits_in_vain(self) -> None:
        """A single worker waits for a guarantee only where each of its nodes would take of what is left of others."""
        for job in self.world.state.jobs.values():
            spec = job.spec
            is_judged = job.status is JobStatus.QUEUED and job.deferred is PendingReason.QUOTA_REACHED
            if not is_judged or spec.workers > 1 or not spec.preemptible or spec.kind is not JobKind.TRAINING:
                continue
            for node in self.world.state.nodes.values():
                takes = healthy(node) if spec.exclusive else spec.gpus_milli
                if not self._has_room(node, spec):
                    continue
                here, then = count(self.world), count(self.world, more=(spec.tenant, takes))
                self.reached["waits alone" if spec.exclusive else "waits"] += 1
                would_take = not then.holds and takes > here.left[spec.tenant]
                assert would_take, (job.id, node.id, here, then)

    def _has_room(self, node: Node, spec: JobSpec) -> bool:
        if not is_open(self.world, node) or (spec.pools and node.pool not in spec.pools):
            return False
        if spec.exclusive and holders(self.world, node):
            return False
        whole = node.gpus_free * GPU
        return spec.gpus_milli <= whole


class NearlyAllIsOwned(Cell):
    """All but a node or two is guaranteed to bob and not lent. The jobs are small, most are alone on their nodes, and
    the policy would give them more nodes, or larger ones, than they need.
    """

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        sizes = [node.spec.gpus for node in self.world.state.nodes.values()]
        sure_milli = max(0, sum(sizes) - random.choice((1, 2, 2, 3)) * min(sizes)) * GPU
        owner = Quota(tenant="bob", gpu_type="gpu", guaranteed_milli=sure_milli, lends=False)
        policy = set_policy(placement=random.choice(("spread", "e-spread", "first-fit")))
        self.world.tell(policy, set_quotas(Quota(tenant="ada", gpu_type="gpu"), owner))

    def _node(self, number: int) -> NodeJoined:
        return joined(f"n{number}", self.random.choice((2, 4, 8)), cpu_milli=9_000)

    def _job(self) -> JobSpec:
        spec, workers = super()._job(), self.random.choice((1, 2, 2, 3))
        return replace(
            spec,
            tenant=self.random.choice(("ada", "ada", "ada", "ada", "bob")),
            exclusive=spec.exclusive or self.random.random() < 0.5,
            workers=workers,
            workers_min=None if spec.workers_min is None else workers,
            resources=replace(spec.resources, gpu_milli=self.random.choice((500, GPU, GPU, 2 * GPU))),
            pools=(),
        )


ALONE, SEVERAL = "starts alone", "starts alone of several workers"


@pytest.mark.parametrize(
    ("seed", "shown"),
    [
        (0, (SEVERAL,)),
        (2, ("starts",)),
        (16, (SEVERAL, "waits alone", "waits")),
        (41, (SEVERAL, "waits alone")),
        (56, (ALONE,)),
        (89, ("starts", "waits")),
        (117, (ALONE,)),
    ],
)
def test_worlds_that_show_it(seed: int, shown: tuple[str, ...]) -> None:
    reached = live(Random(seed))
    assert [what for what in shown if not reached[what]] == []


@given(stories(ROUNDS))
def test_what_owners_do_not_lend_stays_idle_for_them_whoever_is_alone_on_its_nodes(story: Story) -> None:
    reaches("a job starts alone on its nodes beside what owners do not lend", live(story)[ALONE])


@given(stories(ROUNDS))
def test_it_does_so_where_nearly_all_is_theirs(story: Story) -> None:
    reached = live(story, NearlyAllIsOwned)
    reaches("where nearly all is theirs, a job starts alone or waits for it", reached[ALONE] or reached["waits alone"])


@pytest.mark.parametrize("kind", [Cell, NearlyAllIsOwned])
def test_the_property_is_about_something(kind: type[Cell]) -> None:
    reached = Counter[str]()
    for seed in range(30):
        reached += live(Random(seed), kind)
    assert reached["starts"] > 30
    assert reached["starts alone"] > 15
    assert reached["starts alone of several workers"] > 8
    assert reached["waits alone"] > 30
    assert reached["waits"] > 30


def live(random: Random, kind: type[Cell] = Cell) -> Counter[str]:
    """One cell for a while. What of interest it came to."""
    cell = kind(random)
    for _ in rounds_of(random, ROUNDS):
        cell.go()
        cell.nobody_waits_in_vain()
    return cell.reached
