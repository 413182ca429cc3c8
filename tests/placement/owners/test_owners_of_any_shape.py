"""An owner gets what is guaranteed to it beside a flow of borrowers whose jobs all end, whatever shape its job has, and
whatever the borrowers take.
"""

from __future__ import annotations

from random import Random

import pytest

from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import HOLDING
from fallow.shared.events import nodes as n
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.operations import Cordon
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    finished,
    joined,
    report,
    set_policy,
    set_quotas,
    spec_of,
)

TENANTS = (Tenant(name="ada"), Tenant(name="bob"))
QUEUE = Queue(name="default")
BORROWERS = 8
"""So many of the borrower's jobs wait at any time."""


def cell_of(nodes: int, leaves: int = 0, gpus: int = 8) -> list[n.NodeJoined]:
    where = [Position(leaf=f"l{at % leaves}") if leaves else Position() for at in range(nodes)]
    return [joined(f"n{at}", gpus, cpu_milli=64_000, position=position) for at, position in enumerate(where)]


def required(level: Level, slice_workers: int | None = None) -> TopologyRequest:
    return TopologyRequest(level=level, wish=Wish.REQUIRED, slice_workers=slice_workers)


def own(workers: int, gpus: int, cpu_milli: int = 0, topology: TopologyRequest | None = None) -> JobSpec:
    resources = Resources(gpu_milli=1_000 * gpus, cpu_milli=cpu_milli)
    return replace(spec_of("own", gpus, workers=workers, topology=topology), resources=resources)


def flow(gpu_milli: int = 1_000, cpu_milli: int = 0) -> JobSpec:
    resources = Resources(gpu_milli=gpu_milli, cpu_milli=cpu_milli)
    return replace(spec_of("b", tenant="bob"), resources=resources)


class Beside:
    """A cell that the borrower's jobs fill, and an owner with a guarantee for all that its job needs."""

    def __init__(
        self, nodes: list[n.NodeJoined], job: JobSpec, borrower: JobSpec, queue: Queue = QUEUE, **policy: str
    ) -> None:
        cell = CellPart(name=CELL, ordinal=0, pools=(Pool(name="train", gpus=100),), queues=(queue,))
        self.world, self._borrower, self._count = World(CellFile(cells=(cell,), tenants=TENANTS)), borrower, 0
        self.world.tell(set_policy(**policy), set_quotas(share("ada", job.gpus_milli // 1_000), share("bob")))
        self.world.tell(*nodes)
        self.refill()

    def refill(self) -> None:
        while sum(job.status not in HOLDING and job.id != "own" for job in self.world.state.jobs.values()) < BORROWERS:
            self._count += 1
            self.world.tell(admitted(replace(self._borrower, id=f"b{self._count}"), 1))

    def ends_until_start(self, job: JobSpec, seed: int, most: int) -> int | None:
        """How many of the borrower's jobs end, in any order, before all workers of the owner's have places; None where
        they never have.
        """
        random = Random(seed)
        self.world.tell(admitted(job, 2))
        for ends in range(most):
            if len(self.world.job("own").workers) == job.workers:
                return ends
            running = [each for each in self.world.state.jobs.values() if each.status in HOLDING and each.id != "own"]
            ended = random.choice(running)
            self.world.tell(*(finished(ended.id, node) for node in ended.runs))
            self.refill()
        return None


SHAPES = {
    "whole nodes": (cell_of(4), own(3, 8), flow()),
    "two workers on a node": (cell_of(4), own(2, 4, topology=required(Level.NODE)), flow()),
    "many workers on a node": (cell_of(4), own(8, 1, topology=required(Level.NODE)), flow()),
    "halves of most nodes": (cell_of(4), own(6, 4), flow()),
    "a leaf of several workers a node": (cell_of(4, 2), own(4, 4, topology=required(Level.LEAF)), flow()),
    "two nodes of a large leaf": (cell_of(8, 2), own(2, 8, topology=required(Level.LEAF)), flow()),
    "slices in leaves": (cell_of(8, 4), own(4, 8, topology=required(Level.LEAF, 2)), flow()),
    "a smaller slice": (cell_of(8, 4), own(3, 8, topology=required(Level.LEAF, 2)), flow()),
    "slices of a node": (cell_of(4), own(4, 4, topology=required(Level.NODE, 2)), flow()),
    "as many as the CPUs allow": (cell_of(3), own(4, 2, 32_000), flow(cpu_milli=8_000)),
    "one on each node by CPUs": (cell_of(5), own(4, 2, 40_000), flow(cpu_milli=8_000)),
    "a GPU beside halves": (cell_of(2, gpus=4), own(1, 1), flow(500)),
    "a GPU beside quarters": (cell_of(2, gpus=4), own(1, 1), flow(250)),
    "a node beside quarters": (cell_of(2, gpus=4), own(1, 4), flow(250)),
    "workers beside quarters": (cell_of(3, gpus=4), own(4, 2), flow(250)),
    "slices beside halves": (cell_of(4, 2, gpus=2), own(2, 2, topology=required(Level.LEAF, 1)), flow(500)),
}


@pytest.mark.parametrize("seed", [2])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_owner_of_any_shape_starts_in_its_guarantee(shape: str, seed: int) -> None:
    nodes, job, borrower = SHAPES[shape]
    assert Beside(nodes, job, borrower).ends_until_start(job, seed, most=500) is not None


@pytest.mark.parametrize("seed", [2])
def test_an_owner_of_shares_starts_in_its_guarantee(seed: int) -> None:
    job = replace(spec_of("own", workers=2, topology=required(Level.NODE)), resources=Resources(gpu_milli=500))
    beside = Beside(cell_of(3, gpus=2), job, flow(250))
    assert beside.ends_until_start(job, seed, most=300) is not None


SINGLE = {
    "whole nodes": (cell_of(4), own(3, 8), flow()),
    "a service of whole nodes": (cell_of(4), replace(own(3, 8), kind=JobKind.INFERENCE), flow()),
    "halves of nodes": (cell_of(3), own(4, 4), flow()),
    "workers beside quarters": (cell_of(3, gpus=4), own(3, 2), flow(250)),
    "one on each node by CPUs": (cell_of(5), own(4, 2, 40_000), flow(cpu_milli=8_000)),
}
"""Jobs that start with one worker and get the others while they run."""

PASSED = [
    Queue(name="default", discipline=discipline, order=order)
    for discipline in QueueDiscipline
    for order in QueueOrder
    if (discipline, order) != (QueueDiscipline.STRICT_FIFO, QueueOrder.FIFO)
]
"""Queues in which a job does not wait for all that were submitted before it, as these borrowers' are."""


@pytest.mark.parametrize("queue", PASSED, ids=lambda queue: f"{queue.discipline} {queue.order}")
@pytest.mark.parametrize("shape", SINGLE)
def test_an_owner_whose_workers_come_singly_gets_all_of_them_in_its_guarantee(shape: str, queue: Queue) -> None:
    nodes, job, borrower = SINGLE[shape]
    job = replace(job, gang=False, workers_min=1)
    assert Beside(nodes, job, borrower, queue).ends_until_start(job, 2, most=500) is not None


def test_a_job_that_runs_keeps_others_off_no_more_than_its_guarantee() -> None:
    """Of its three workers two are guaranteed: borrowers have the rest as before."""
    nodes, job, borrower = SINGLE["whole nodes"]
    beside = Beside(nodes, job, borrower)
    beside.world.tell(set_quotas(share("ada", 16), share("bob")))
    job = replace(job, gang=False, workers_min=1)
    assert beside.ends_until_start(job, 2, most=200) is None
    assert len(beside.world.job("own").workers) == 2
    assert beside.world.state.tree.kept.all == ()
    assert sum(len(each.workers) for each in beside.world.state.jobs.values() if each.id != "own") == 16


def test_nothing_is_kept_for_a_worker_that_no_node_holds_beside_the_others_of_its_job() -> None:
    job = replace(own(3, 5), gang=False, workers_min=1)
    beside = Beside(cell_of(2), job, flow())
    assert beside.ends_until_start(job, 2, most=200) is None
    assert len(beside.world.job("own").workers) == 2
    assert beside.world.state.tree.kept.all == ()


def test_a_gpu_that_breaks_under_a_worker_takes_no_room_of_the_next_one() -> None:
    """Four GPUs stay healthy beside those of the worker, which goes on with three that are and the broken one."""
    job = replace(own(2, 4), gang=False, workers_min=1)
    beside = Beside(cell_of(2), job, flow())
    beside.world.tell(admitted(job, 2))
    ended = on_node(beside, "n0")[:4]
    beside.world.tell(*(finished(borrower, "n0") for borrower in ended))
    (worker,) = beside.world.job("own").workers
    beside.world.tell(report("n0", failed=worker.devices[:1]))
    for borrower in on_node(beside, "n0"):
        assert len(beside.world.job("own").workers) == 1
        beside.world.tell(finished(borrower, "n0"))
    assert [place.node for place in beside.world.job("own").workers] == ["n0", "n0"]


def test_a_job_that_only_a_closed_node_would_hold_more_of_keeps_nothing_from_another_of_its_owner() -> None:
    """Where its worker runs there is room for no other; the other job takes a node that is too small for the first."""
    job = replace(own(2, 4), gang=False, workers_min=1)
    nodes = [joined("n0", 4), joined("n1", 2), joined("n2", 8), joined("n3", 2)]
    beside = Beside(nodes, job, flow())
    beside.world.tell(Cordon(cell=CELL, node="n2"), admitted(job, 2))
    beside.world.tell(*(finished(borrower, "n0") for borrower in on_node(beside, "n0")))
    assert [place.node for place in beside.world.job("own").workers] == ["n0"]
    beside.world.tell(admitted(spec_of("small", 2), 3))
    for borrower in on_node(beside, "n1"):
        beside.world.tell(finished(borrower, "n1"))
    assert [place.node for place in beside.world.job("small").workers] == ["n1"]


def on_node(beside: Beside, node: str) -> list[str]:
    """The borrower's jobs there."""
    jobs = beside.world.state.jobs.values()
    return [each.id for each in jobs if each.id != "own" and each.workers and each.workers[0].node == node]


def test_a_job_of_which_more_workers_are_wanted_than_its_limit_lets_start_starts_with_those_that_it_may_have() -> None:
    job = replace(own(3, 8), gang=False, workers_min=2)
    beside = Beside(cell_of(4), job, flow())
    beside.world.tell(set_quotas(replace(share("ada", 16), limit_milli=16_000), share("bob")))
    assert beside.ends_until_start(job, 2, most=300) is None
    assert len(beside.world.job("own").workers) == 2


def test_broken_devices_hold_no_worker_and_nothing_is_kept_for_one_there() -> None:
    job = own(2, 4)
    beside = Beside(cell_of(2), job, flow())
    beside.world.tell(report("n0", failed=(4, 5, 6, 7)))
    beside.world.tell(admitted(job, 2))
    kept = dict[str, None]()
    for node in ("n0", "n1"):
        here = next(
            each.id
            for each in beside.world.state.jobs.values()
            if each.workers and each.workers[0].node == node and each.workers[0].devices[0] < 4
        )
        beside.world.tell(finished(here, node))
        kept = dict.fromkeys(place.node for each in beside.world.state.tree.kept.all for place in each.places)
    assert sorted(kept) == ["n0", "n1"]
