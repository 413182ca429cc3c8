"""A job that no node could hold even empty, or no rack: it waits for other hardware, and no job waits for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.fit.empty_capacity import could_ever_start
from fallow.services.placement.policy.policies import POLICIES
from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant
from fallow.shared.cluster.model.job import HOLDING
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
)
from fallow.shared.events.operations import CellPolicy, PlanMaintenance
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, lost, report, set_policy, spec_of

LINE = "line"
QUEUES = [
    Queue(name=LINE, discipline=discipline, order=order)
    for discipline in QueueDiscipline
    for order in (QueueOrder.FIFO, QueueOrder.FAIR_SHARE)
]
RACK = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)
NODES = (
    joined("n1", 4, cpu_milli=8_000, memory_mib=8_000, position=Position(leaf="a"), labels={"disk": "nvme"}),
    joined("n2", 4, cpu_milli=8_000, memory_mib=8_000, position=Position(leaf="b")),
)
TOO_LARGE: dict[str, dict[str, Any]] = {
    "CPU": {"resources": Resources(cpu_milli=8_001)},
    "memory": {"resources": Resources(memory_mib=8_001)},
    "the memory of all": {"workers": 3, "resources": Resources(memory_mib=5_000)},
    "GPUs of a node": {"resources": Resources(gpu_milli=5 * GPU)},
    "GPUs of all": {"workers": 9},
    "shares of all": {"workers": 17, "resources": Resources(gpu_milli=500)},
    "GPUs beside memory": {"workers": 8, "resources": Resources(memory_mib=4_000)},
    "a label": {"workers": 5, "node_labels": ("disk=nvme",)},
    "a GPU type": {"gpu_type": "h100"},
    "a rack": {"workers": 5, "topology": RACK},
    "a rack for each half": {
        "workers": 8,
        "topology": TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=3),
    },
    "a node": {"workers": 5, "topology": TopologyRequest(level=Level.NODE, wish=Wish.REQUIRED)},
    "a spine": {"workers": 2, "topology": TopologyRequest(level=Level.SPINE, wish=Wish.REQUIRED)},
}


def world_of(queue: Queue, *more: Queue, **policy: Any) -> World:
    cell = CellPart(
        name=CELL,
        ordinal=0,
        pools=(Pool(name="train", gpus=1_000),),
        queues=(queue, *more),
        policy=CellPolicy(**{"backfill_wait_ms": 0, "node_lease_wall_ms": 1_000_000, **policy}),
    )
    return World(CellFile(cells=(cell,), tenants=tuple(Tenant(name=name) for name in ("ada", "bob", "eve"))))


def submit(world: World, job: str, **spec: Any) -> None:
    base: dict[str, Any] = {"tenant": "ada", "pools": ("train",), "queue": LINE}
    world.tell(admitted(JobSpec(**{"id": job, **base, **spec}), world.now_ms + len(world.state.jobs)))


@pytest.mark.parametrize("what", TOO_LARGE)
@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: f"{queue.discipline} {queue.order}")
def test_nobody_waits_for_it_in_any_queue(queue: Queue, what: str) -> None:
    world = world_of(queue)
    world.tell(*NODES)
    submit(world, "first", workers=2, resources=Resources(gpu_milli=3 * GPU, cpu_milli=6_000, memory_mib=6_000))
    submit(world, "giant", **TOO_LARGE[what])
    submit(world, "small")
    submit(world, "of-bob", tenant="bob")
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("small").workers
    assert world.job("of-bob").workers
    assert not world.state.heads


@pytest.mark.parametrize("what", TOO_LARGE)
def test_who_reads_is_told_the_same(what: str) -> None:
    world = world_of(QUEUES[0])
    world.tell(*NODES)
    submit(world, "giant", **TOO_LARGE[what])
    told = why_not(world.state, world.job("giant"), world.file.cells[0].queues, world.now_ms)
    assert (told.recorded, told.codes) == (PendingReason.NO_SUCH_NODES, (PendingReason.NO_SUCH_NODES,))


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: f"{queue.discipline} {queue.order}")
def test_when_a_larger_node_joins_it_is_waited_for_as_any_other(queue: Queue) -> None:
    world = world_of(queue)
    world.tell(*NODES)
    submit(world, "giant", **TOO_LARGE["GPUs of a node"])
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES
    world.tell(joined("n3", 8, cpu_milli=99_000, memory_mib=99_000))
    assert world.job("giant").workers


def test_it_waits_for_room_while_the_only_node_that_holds_it_is_in_use_and_for_nodes_once_that_is_lost() -> None:
    world = world_of(Queue(name=LINE, discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*NODES, joined("n3", 8, labels={"disk": "hdd"}))
    submit(world, "first", resources=Resources(gpu_milli=8 * GPU))
    submit(world, "giant", resources=Resources(gpu_milli=8 * GPU))
    submit(world, "small", node_labels=("disk=hdd",))
    assert world.job("giant").deferred is PendingReason.FRAGMENTED
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD
    world.tell(lost("n3"))
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("small").deferred is PendingReason.NO_SUCH_NODES
    world.tell(report("n3"))
    assert world.job("first").workers


def test_a_broken_gpu_may_make_it_so() -> None:
    world = world_of(Queue(name=LINE, discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*NODES)
    world.tell(report("n1", failed=(0,)), report("n2", failed=(1,)))
    submit(world, "giant", resources=Resources(gpu_milli=4 * GPU))
    submit(world, "small")
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("small").workers
    world.tell(joined("n3", 4))
    assert world.job("giant").workers


@pytest.mark.parametrize("kind", JobKind)
def test_a_job_that_has_all_that_its_nodes_hold_keeps_nobody_back(kind: JobKind) -> None:
    world = world_of(Queue(name=LINE, discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*NODES, joined("n3", 4, labels={"disk": "nvme"}, position=Position(leaf="c")))
    submit(world, "wide", workers=9, gang=False, node_labels=("disk=nvme",), kind=kind)
    submit(world, "small")
    assert len(world.job("wide").workers) == 8
    assert world.job("small").workers


def test_training_has_no_nodes_in_a_pool_that_is_all_inference_zone() -> None:
    world = world_of(Queue(name=LINE, discipline=QueueDiscipline.STRICT_FIFO), placement="e-spread")
    world.tell(joined("n1", 4, role=NodeRole.INFERENCE))
    submit(world, "training")
    submit(world, "service", kind=JobKind.INFERENCE)
    assert world.job("training").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("service").workers


def test_the_rest_that_shares_leave_on_a_gpu_holds_no_further_share() -> None:
    world = world_of(QUEUES[0])
    world.tell(*NODES)
    submit(world, "full", workers=24, resources=Resources(gpu_milli=300))
    submit(world, "giant", workers=25, resources=Resources(gpu_milli=300))
    assert world.job("full").workers
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES


def test_a_gang_in_slices_waits_for_room_where_its_smaller_slice_fits_beside_a_whole_one() -> None:
    world = world_of(QUEUES[0])
    world.tell(joined("n1", 5, position=Position(leaf="a")), joined("n2", 3, position=Position(leaf="b")))
    slices = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=3)
    submit(world, "first")
    submit(world, "gang", workers=8, topology=slices)
    assert world.job("gang").deferred is PendingReason.NO_FREE_GPUS
    world.tell(finished("first", world.nodes_of("first")[0]))
    assert sorted(set(world.nodes_of("gang"))) == ["n1", "n2"]


def test_the_racks_of_one_label_say_nothing_of_those_of_another() -> None:
    world = world_of(QUEUES[0])
    world.tell(NODES[0], joined("n2", 8, position=Position(leaf="b")))
    submit(world, "first", workers=8, node_labels=("!disk",))
    submit(world, "giant", workers=8, topology=RACK, node_labels=("disk=nvme",))
    submit(world, "other", workers=8, topology=RACK, node_labels=("!disk",))
    assert world.job("giant").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("other").deferred is PendingReason.NO_FREE_GPUS


def test_the_racks_of_one_zone_say_nothing_of_those_of_another() -> None:
    world = world_of(QUEUES[0], placement="e-spread")
    world.tell(
        joined("n1", 4, position=Position(leaf="a")),
        joined("n2", 8, position=Position(leaf="b"), role=NodeRole.INFERENCE),
    )
    submit(world, "first", workers=8, kind=JobKind.INFERENCE, gang=True)
    submit(world, "training", workers=8, topology=RACK)
    submit(world, "service", workers=8, topology=RACK, kind=JobKind.INFERENCE, gang=True)
    assert world.job("training").deferred is PendingReason.NO_SUCH_NODES
    assert world.job("service").deferred not in (None, PendingReason.NO_SUCH_NODES)


def test_a_job_that_planned_maintenance_keeps_back_could_start_later() -> None:
    world = world_of(Queue(name=LINE))
    world.tell(NODES[0], PlanMaintenance(cell=CELL, node="n1", begin_ms=50_000, end_ms=60_000, reason="disk"))
    submit(world, "long", max_run_ms=90_000)
    assert world.job("long").deferred is PendingReason.MAINTENANCE
    assert could_ever_start(world.state, world.job("long"))


@pytest.mark.parametrize(
    ("what", "now"),
    [
        ({"node_labels": ("disk=ssd",)}, {"labels": {"disk": "ssd"}}),
        ({"workers": 8, "topology": RACK}, {"position": Position(leaf="b")}),
    ],
    ids=["labels", "a place in the network"],
)
def test_a_node_that_comes_back_with_another_of_these_is_looked_at_again(
    what: dict[str, Any], now: dict[str, Any]
) -> None:
    world = world_of(Queue(name=LINE))
    world.tell(*NODES)
    for job in ("next", "waits"):
        submit(world, job, **{"workers": 4, **what})
        assert world.job(job).deferred is PendingReason.NO_SUCH_NODES
    world.tell(joined("n1", 4, boot="boot-2", cpu_milli=8_000, memory_mib=8_000, **now))
    assert world.job("next").workers
    assert world.job("waits").deferred is PendingReason.NO_FREE_GPUS


def test_a_job_that_requires_a_rack_for_more_workers_than_it_has_could_be_where_all_of_them_fit() -> None:
    world = world_of(Queue(name=LINE, discipline=QueueDiscipline.STRICT_FIFO))
    world.tell(*(joined(f"n{number}", 4, position=Position(leaf="a")) for number in (1, 2)))
    more = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED, slice_workers=3)
    submit(world, "first", resources=Resources(gpu_milli=4 * GPU))
    submit(world, "head", workers=2, resources=Resources(gpu_milli=4 * GPU), topology=more)
    submit(world, "small")
    assert not world.job("head").workers
    assert world.job("small").deferred is PendingReason.BEHIND_HEAD


def _node(random: Random, number: int) -> Any:
    gpus = random.choice((0, 1, 2, 4, 4, 8))
    return joined(
        f"n{number}",
        gpus,
        pool=random.choice(("train", "train", "first")),
        gpu_type=random.choice(("gpu", "gpu", "h100")),
        cpu_milli=random.choice((0, 4_000, 8_000)),
        memory_mib=random.choice((0, 4_000, 8_000)),
        position=Position(
            leaf=random.choice((None, "a", "b")),
            spine=random.choice((None, "s")),
            domain=random.choice((None, "d")),
        ),
        labels=random.choice(({}, {"disk": "nvme"}, {"zone": "inference"})),
        taints=random.choice(((), (), ("hot",))),
        role=random.choice((NodeRole.TRAINING, NodeRole.INFERENCE)),
    )


def _spec(random: Random) -> JobSpec:
    wish = TopologyRequest(
        level=random.choice(list(Level)),
        wish=random.choice((Wish.REQUIRED, Wish.REQUIRED, Wish.PREFERRED)),
        slice_workers=random.choice((None, None, 1, 2, 3)),
    )
    return spec_of(
        "asked",
        workers=random.choice((1, 1, 2, 3, 4, 5, 7, 8)),
        kind=random.choice(list(JobKind)),
        pools=random.choice(((), ("train",), ("first", "train"))),
        gpu_type=random.choice((None, None, "gpu", "h100")),
        resources=Resources(
            gpu_milli=random.choice((300, 500, GPU, GPU, 2 * GPU, 4 * GPU, 8 * GPU)),
            cpu_milli=random.choice((0, 0, 1_000, 4_000, 5_000)),
            memory_mib=random.choice((0, 0, 1_000, 4_000, 5_000)),
        ),
        topology=random.choice((None, None, wish, wish)),
        node_labels=random.choice(((), (), ("disk=nvme",), ("!disk",))),
        tolerations=random.choice(((), ("hot",))),
        exclusive=random.random() < 0.2,
    )


@given(st.randoms(use_true_random=False))
def test_what_an_empty_cell_has_no_places_for_waits_for_nodes_and_nothing_else_does(random: Random) -> None:
    """Each policy is its own judge: what it can place when the cell is empty is never told to wait for nodes."""
    world = World()
    world.tell(set_policy(placement=random.choice(list(POLICIES))))
    world.tell(*(_node(random, number) for number in range(random.randint(1, 6))))
    specs = [_spec(random) for _ in range(4)]
    empty = [place_gang(world.state, spec) for spec in specs]
    kinds = {isinstance(code, PendingReason) for code in empty}
    reaches("an empty cell has places for some jobs, and none for others", len(kinds) > 1)
    assert all(code is PendingReason.NO_SUCH_NODES for code in empty if isinstance(code, PendingReason))
    for number in range(random.randint(1, 6)):
        fill = spec_of(f"f{number}", resources=Resources(gpu_milli=random.choice((300, GPU, 4 * GPU)), cpu_milli=900))
        world.tell(admitted(fill, number))
    for spec, before in zip(specs, empty, strict=True):
        now = place_gang(world.state, spec)
        assert (now is PendingReason.NO_SUCH_NODES) is (before is PendingReason.NO_SUCH_NODES)


@given(st.randoms(use_true_random=False))
def test_with_such_jobs_in_their_lines_all_others_start_as_they_would_without(random: Random) -> None:
    """By shares they are of a tenant of their own: of equal shares that tenant comes first whose next job came first,
    whatever that job waits for.
    """
    queue = random.choice(QUEUES)
    worlds = [world_of(queue, Queue(name="other")) for _ in range(2)]
    tenants = ("eve",) if queue.order is QueueOrder.FAIR_SHARE else ("ada", "bob", "eve")
    passes = False
    for world in worlds:
        world.tell(*NODES)
    for number in range(12):
        if random.random() < 0.3:
            what = random.choice(list(TOO_LARGE))
            tenant, priority = random.choice(tenants), random.randint(-1, 2)
            submit(worlds[0], f"giant{number}", tenant=tenant, priority=priority, **TOO_LARGE[what])
        elif random.random() < 0.7:
            spec: dict[str, Any] = {
                "tenant": random.choice(("ada", "bob")),
                "queue": random.choice((LINE, LINE, "other")),
                "workers": random.choice((1, 1, 2)),
                "priority": random.randint(0, 1),
                "resources": Resources(gpu_milli=random.choice((500, GPU, 3 * GPU)), cpu_milli=1_000),
            }
            for world in worlds:
                world.tell(admitted(JobSpec(id=f"j{number}", pools=("train",), **spec), number))
        else:
            holding = sorted(job.id for job in worlds[1].state.jobs.values() if job.status in HOLDING)
            over = random.sample(holding, min(len(holding), 2))
            for world in worlds:
                jobs = [world.job(each) for each in over]
                world.tell(*(finished(job.id, node, job.attempt) for job in jobs for node in job.runs))
        starts = [
            {job.id: job.workers for job in world.state.jobs.values() if job.status in HOLDING} for world in worlds
        ]
        assert starts[0] == starts[1]
        passes |= bool(starts[0]) and any(job.startswith("giant") for job in worlds[0].state.jobs)
    reaches("jobs start beside one that is too large for the cell", passes)


@pytest.mark.parametrize("queue", QUEUES, ids=lambda queue: f"{queue.discipline} {queue.order}")
def test_each_of_several_that_are_alike_is_told_so_whenever_it_comes(queue: Queue) -> None:
    world = world_of(queue)
    for job in ("first", "second", "third"):
        world.tell(admitted(spec_of(job, 5, queue=LINE)))
    world.tell(admitted(spec_of("fourth", 5, queue=LINE)))
    assert {world.job(job).deferred for job in ("first", "second", "third", "fourth")} == {PendingReason.NO_SUCH_NODES}
