"""Whatever admission lets in, the cell keeps deciding: every reader can fold each start, and each start has the workers
that its job needs at the least.

Jobs draw every wish that they may have beside every other one: pools, shares of a device, whole nodes alone, places in
the network, failure domains, labels, fewest workers, services. The cell draws nodes of any shape, quotas, and every
placement policy.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given

from fallow.services.admission.service import AdmissionService
from fallow.services.placement.search.gang import POLICIES
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.independent_workers import fewest_of
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events import effects as e
from fallow.shared.events.codec.encoding import encode
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    JobKind,
    JobSpec,
    Level,
    NodeRole,
    Position,
    Resources,
    TopologyRequest,
    Wish,
    WorkerPlace,
)
from fallow.shared.events.jobs import JobAdmitted
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import Cordon, Drain, Quota, Uncordon
from fallow.shared.events.queue import QueueDiscipline
from fallow.shared.events.submissions import SubmitJob
from tests.hypothesis_profile import Story, reaches, rounds_of, stories
from tests.placement.worlds.world import CELL, World, failed, finished, joined, lost, report, set_policy, set_quotas

T = TypeVar("T")

TENANTS, ROUNDS = ("ada", "bob", "eve"), 14
POOLS = {"train": "gpu", "extra": "gpu", "new": "big"}
FILE = CellFile(
    cells=(
        CellPart(
            name=CELL,
            ordinal=0,
            pools=tuple(Pool(name=name, gpus=1_000, gpu_type=kind) for name, kind in POOLS.items()),
            queues=tuple(Queue(name=each.value.replace("_", "-"), discipline=each) for each in QueueDiscipline),
        ),
    ),
    tenants=tuple(Tenant(name=name) for name in TENANTS),
)


class Cell:
    """One cell in which something happens again and again."""

    def __init__(self, random: Random) -> None:
        self.random, self.submitted, self.reached = random, 0, Counter[str]()
        self.world, self.admission = World(FILE), AdmissionService(FILE)
        self.world.tell(*(self._node(number) for number in range(random.randint(1, 6))))
        self.world.tell(set_policy(placement=random.choice(sorted(POLICIES))))
        if random.random() < 0.6:
            self.world.tell(set_quotas(*(self._quota(name) for name in TENANTS if random.random() < 0.7)))

    def _sometimes(self, part: float, value: T, otherwise: T) -> T:
        return value if self.random.random() < part else otherwise

    def _node(self, number: int) -> NodeJoined:
        random, gpus = self.random, self.random.choice((0, 1, 2, 3, 4, 8, 8, 8, 8))
        islands = (gpus // 2, gpus // 2) if gpus > 1 and gpus % 2 == 0 and random.random() < 0.5 else ()
        return joined(
            f"n{number}",
            gpus,
            pool=random.choice(list(POOLS)),
            gpu_type=random.choice(("gpu", "gpu", "big")),
            islands=islands,
            cpu_milli=self._sometimes(0.3, 4_000, 64_000),
            labels={"zone": random.choice("ab")},
            taints=self._sometimes(0.2, ("hot",), ()),
            role=self._sometimes(0.2, NodeRole.INFERENCE, NodeRole.TRAINING),
            position=Position(domain=random.choice("xy"), leaf=random.choice("pq"), spine="s"),
        )

    def _quota(self, tenant: str) -> Quota:
        random, limit = self.random, self._sometimes(0.4, self.random.randint(0, 20) * GPU, None)
        sure = random.randint(0, min(8 * GPU, 8 * GPU if limit is None else limit) // GPU) * GPU
        return Quota(
            tenant=tenant,
            gpu_type=random.choice(("gpu", "gpu", "big")),
            limit_milli=limit,
            guaranteed_milli=sure,
            borrows=random.random() < 0.8,
            lends=random.random() < 0.5,
        )

    def job(self) -> JobSpec:
        """With any wish beside any other that it may stand beside."""
        random, workers = self.random, self.random.choice((1, 1, 2, 3, 4, 9))
        self.submitted += 1
        kind, is_gang = self._sometimes(0.3, JobKind.INFERENCE, JobKind.TRAINING), random.random() < 0.6
        wish = TopologyRequest(
            level=random.choice(list(Level)),
            wish=random.choice(list(Wish)),
            slice_workers=self._sometimes(0.4, random.randint(1, workers), None),
        )
        is_singly = kind is JobKind.INFERENCE or not is_gang
        return JobSpec(
            id=f"job-{self.submitted}",
            tenant=random.choice(TENANTS),
            kind=kind,
            priority=random.choice((0, 0, 5)),
            queue=random.choice((None, *(queue.name for queue in FILE.cells[0].queues))),
            pools=random.choice(((), (), ("train",), ("extra", "train"), ("train", "new"))),
            gpu_type=random.choice((None, None, None, "gpu")),
            workers=workers,
            workers_min=self._sometimes(0.7, random.randint(1, workers), None) if is_singly else None,
            resources=Resources(
                gpu_milli=random.choice((1, 300, 500, GPU, GPU, GPU, 2 * GPU, 3 * GPU, 8 * GPU)),
                cpu_milli=random.choice((0, 100, 3_000)),
            ),
            gang=is_gang,
            topology=None if is_singly else self._sometimes(0.5, wish, None),
            spread=self._sometimes(0.4, random.choice(list(Level)), None) if kind is JobKind.INFERENCE else None,
            preemptible=random.random() < 0.9,
            max_run_ms=self._sometimes(0.3, 60_000, None),
            node_labels=self._sometimes(0.2, (random.choice(("zone=a", "zone!=a", "!other")),), ()),
            tolerations=self._sometimes(0.6, ("hot",), ()),
            exclusive=random.random() < 0.3,
            array=self._sometimes(0.1, 3, None),
        )

    def large(self) -> JobSpec:
        """A service with about as many replicas as the cell has GPUs: hardly a pool holds them all."""
        gpus = sum(node.spec.gpus for node in self.world.state.nodes.values())
        workers = max(1, self.random.randint(gpus // 2, gpus))
        return replace(
            self.job(),
            workers=workers,
            workers_min=self._sometimes(0.7, self.random.randint((workers + 1) // 2, workers), None),
            resources=Resources(),
            kind=JobKind.INFERENCE,
            gang=False,
            pools=(),
            spread=None,
            gpu_type=None,
            topology=None,
            node_labels=(),
        )

    def admitted(self) -> list[JobAdmitted]:
        """What admission passes on of one submission: nothing where it turns the job away."""
        spec = self.large() if self.random.random() < 0.2 else self.job()
        answer = self.admission.answer(SubmitJob.type, encode(SubmitJob(job=spec)), None, self.world.now_ms)
        return [answer] if isinstance(answer, JobAdmitted) else []

    def go(self) -> None:
        """Something happens."""
        random, world = self.random, self.world
        chance, node = random.random(), random.choice(list(world.state.nodes.values()))
        told = list[e.AnyEffect]()
        if chance < 0.6:
            told = world.tell(*(job for _ in range(random.randint(1, 4)) for job in self.admitted()))
        elif chance < 0.8:
            told = self._end()
        elif chance < 0.9:
            told = world.tell(random.choice((Cordon, Drain, Uncordon))(cell=CELL, node=node.id))
        elif chance < 0.95:
            told = world.tell(report(node.id, failed=self._sometimes(0.5, (0,), ())))
        else:
            told = world.tell(lost(node.id), joined(node.id, node.spec.gpus, boot=f"again-{self.submitted}"))
        self._each_start_is_whole(told)

    def _end(self) -> list[e.AnyEffect]:
        told = list[e.AnyEffect]()
        for job in [job for job in self.world.state.jobs.values() if job.status in HOLDING]:
            if self.random.random() < 0.5:
                word = self._sometimes(0.7, finished, failed)
                for at in dict.fromkeys(place.node for place in job.workers):
                    told += self.world.tell(word(job.id, at, job.attempt))
        return told

    def _each_start_is_whole(self, told: list[e.AnyEffect]) -> None:
        for effect in told:
            job = self.world.state.jobs.get(effect.job) if isinstance(effect, e.JobStarted) else None
            if isinstance(effect, e.JobStarted) and job is not None:
                assert len(effect.workers) >= min(fewest_of(job), job.spec.workers), effect
                self._note(job.spec, effect.workers)

    def _note(self, spec: JobSpec, workers: tuple[WorkerPlace, ...]) -> None:
        nodes = [self.world.state.nodes[node] for node in dict.fromkeys(place.node for place in workers)]
        seen = {
            "starts": True,
            "alone on its nodes": spec.exclusive,
            "shares of a device": spec.resources.gpu_milli < GPU,
            "a place in the network": spec.topology is not None,
            "failure domains": spec.spread is not None,
            "labels": bool(spec.node_labels),
            "services": spec.kind is JobKind.INFERENCE,
            "workers one by one": not spec.gang,
            "some of its workers": len(workers) < spec.workers,
            "elements of arrays": spec.array_of is not None,
            "several nodes": len(nodes) > 1,
            "several pools": len({node.pool for node in nodes}) > 1,
            "under quotas": bool(self.world.state.quotas),
        }
        self.reached.update(what for what, is_so in seen.items() if is_so)


class RoomyCell(Cell):
    """A cell in which most jobs find a node that they may use: so the wishes of those that start meet each other."""

    def _node(self, number: int) -> NodeJoined:
        node = super()._node(number)
        gpu_type = POOLS[node.spec.pool]
        spec = replace(node.spec, gpu_type=gpu_type, gpus=8, islands=(), role=NodeRole.TRAINING, cpu_milli=64_000)
        return replace(node, spec=spec)

    def job(self) -> JobSpec:
        spec = super().job()
        if self.random.random() < 0.2:
            return spec
        wants = replace(spec.resources, cpu_milli=0, gpu_milli=min(spec.resources.gpu_milli, 2 * GPU))
        kind = JobKind.TRAINING if spec.spread is None else spec.kind
        return replace(spec, pools=(), gpu_type=None, tolerations=("hot",), resources=wants, kind=kind)


def live(random: Random, kind: type[Cell] = Cell) -> Counter[str]:
    """One cell for a while. How many starts of each kind it came to."""
    cell = kind(random)
    for _ in rounds_of(random, ROUNDS):
        cell.go()
    return cell.reached


@pytest.mark.parametrize(
    ("seed", "shown"),
    [
        (40, ("services", "some of its workers", "a place in the network", "several pools")),
        (119, ("services", "alone on its nodes", "shares of a device", "labels")),
    ],
)
def test_worlds_that_show_it(seed: int, shown: tuple[str, ...]) -> None:
    reached = live(Random(seed))
    assert [what for what in shown if not reached[what]] == []


@given(stories(ROUNDS))
def test_whatever_admission_lets_in_is_decided_upon_and_starts_with_its_fewest_workers(story: Story) -> None:
    reaches("a job of which more is asked than GPUs is started", any(live(story)[what] for what in WISHES))


@given(stories(ROUNDS))
def test_so_it_is_where_most_jobs_find_a_node(story: Story) -> None:
    reached = live(story, RoomyCell)
    reaches("where most jobs find a node, several wishes are met", sum(reached[what] > 0 for what in WISHES) > 1)


WISHES = ("alone on its nodes", "a place in the network", "failure domains", "labels", "some of its workers")


def test_the_property_is_about_something() -> None:
    reached = Counter[str]()
    for seed in range(40):
        reached += live(Random(seed), RoomyCell if seed % 2 else Cell)
    rare = {what: times for what, times in reached.items() if times < 8}
    assert not rare
    assert (len(reached), reached["starts"] > 120) == (13, True)
