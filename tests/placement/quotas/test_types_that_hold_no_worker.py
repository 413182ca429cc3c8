"""A job of any GPU type goes by the types whose nodes could hold it: a type of which none could is none that it waits
for, whatever of it is idle, guaranteed, or used up.
"""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.fit.usable_types import types_for
from fallow.services.placement.owners.owners_first import fits_in
from fallow.services.placement.search.quota_check import limit_reached, waits_by_types
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, Position, Resources, TopologyRequest, Wish
from fallow.shared.events.nodes import NodeJoined
from fallow.shared.events.operations import Cordon, PlanMaintenance
from fallow.shared.events.queue import QueueDiscipline, QueueOrder
from fallow.shared.events.reasons import PendingReason
from tests.placement.oracles.naive_keeping import JudgedWorld
from tests.placement.quotas.test_borrowing import why
from tests.placement.worlds.world import CELL, World, admitted, finished, joined, spec_of

TWO = Resources(gpu_milli=2_000)
OWN = replace(spec_of("own"), resources=TWO)
ROOMY = {"cpu_milli": 64_000, "memory_mib": 64_000, "labels": {"disk": "fast"}}
JOBS: dict[str, tuple[JobSpec, dict[str, Any]]] = {
    "memory": (replace(OWN, resources=replace(TWO, memory_mib=32_000)), {"memory_mib": 8_000}),
    "CPUs": (replace(OWN, resources=replace(TWO, cpu_milli=32_000)), {"cpu_milli": 8_000}),
    "GPUs of a node": (OWN, {"gpus": 1}),
    "GPUs of all nodes": (replace(OWN, workers=2, resources=Resources(gpu_milli=1_000)), {"gpus": 1}),
    "labels": (replace(OWN, node_labels=("disk=fast",)), {"labels": {}}),
    "taints": (OWN, {"taints": ("reserved",)}),
    "memory of a worker": (
        replace(OWN, workers=2, workers_min=1, gang=False, resources=Resources(gpu_milli=1_000, memory_mib=32_000)),
        {"memory_mib": 8_000},
    ),
    "memory of a replica": (
        replace(
            OWN,
            kind=JobKind.INFERENCE,
            gang=False,
            workers=2,
            workers_min=2,
            resources=Resources(gpu_milli=1_000, memory_mib=32_000),
        ),
        {"memory_mib": 8_000},
    ),
}
"""Jobs, with what node `a` of the first type lacks for them; node `b` of the other type could hold each."""


BEST_EFFORT = Queue(name="default")
STRICT = Queue(name="default", discipline=QueueDiscipline.STRICT_FIFO, order=QueueOrder.FAIR_SHARE)


def node(name: str, gpu_type: str, pool: str, **lacks: Any) -> NodeJoined:
    fields: dict[str, Any] = {**ROOMY, **lacks}
    return joined(name, fields.pop("gpus", 4), gpu_type=gpu_type, pool=pool, **fields)


def cell_of(
    lacks: dict[str, Any],
    *quotas: TenantQuota,
    pools: tuple[str, str] = ("train", "train"),
    queue: Queue = BEST_EFFORT,
) -> World:
    """A cell with two nodes, each of a type of its own; the first one has too little of something."""
    parts = tuple(Pool(name=name, gpus=40) for name in dict.fromkeys(pools))
    cell = CellPart(name=CELL, ordinal=0, pools=parts, queues=(queue,))
    often = tuple(TenantQuota(gpu_type=gpu_type, weight=1_000) for gpu_type in ("first", "other"))
    tenants = (Tenant(name="ada", quotas=quotas), Tenant(name="bob", quotas=often))
    world = JudgedWorld(CellFile(cells=(cell,), tenants=tenants))
    world.tell(node("a", "first", pools[0], **lacks), node("b", "other", pools[1]))
    return world


def quota(gpu_type: str, guaranteed: int = 0, limit: int | None = None) -> TenantQuota:
    return TenantQuota(gpu_type=gpu_type, guaranteed=guaranteed, limit=limit)


def fill(world: World, jobs: int = 8) -> list[str]:
    """Jobs of one GPU of another tenant have all of node `b`, and more of them wait. Those that run there."""
    flow = [spec_of(f"flow-{number:02}", tenant="bob", gpu_type="other") for number in range(jobs)]
    world.tell(*(admitted(replace(spec, tolerations=("reserved",))) for spec in flow))
    return sorted(spec.id for spec in flow if world.job(spec.id).workers)


def claimed(world: World) -> set[tuple[str, bool]]:
    """Of which types places are kept now, and whether for a job that is guaranteed whole."""
    kept = world.state.tree.kept.all
    return {(gpu_type, each.is_whole) for each in kept for (_, gpu_type), _ in each.owners}


def with_limit(gpu_type: str, limit: int, *nodes: NodeJoined) -> World:
    """A cell of these nodes in which a tenant may use so many GPUs of one type, and all that it likes of others."""
    pools = tuple(Pool(name=name, gpus=100) for name in dict.fromkeys(each.spec.pool for each in nodes))
    cell = CellPart(name=CELL, ordinal=0, pools=pools, queues=(BEST_EFFORT,))
    world = JudgedWorld(CellFile(cells=(cell,), tenants=(Tenant(name="ada", quotas=(quota(gpu_type, limit=limit),)),)))
    world.tell(*nodes)
    return world


POOLS = [("train", "train"), ("extra", "train")]
QUEUES = [
    Queue(name="default"),
    Queue(name="default", discipline=QueueDiscipline.STRICT_FIFO, order=QueueOrder.FAIR_SHARE),
]


@pytest.mark.parametrize(("queue", "of_first"), [(BEST_EFFORT, 4), (STRICT, 1)], ids=("best effort", "strict"))
@pytest.mark.parametrize("pools", POOLS, ids=("one pool", "two pools"))
@pytest.mark.parametrize("job", JOBS)
def test_an_owner_gets_its_guarantee_of_the_type_that_could_hold_its_job(
    job: str, pools: tuple[str, str], queue: Queue, of_first: int
) -> None:
    """Whether more is guaranteed to it of the other type than its job wants, or less. In the strict queue the borrower
    has the turn.
    """
    spec, lacks = JOBS[job]
    world = cell_of(lacks, quota("first", guaranteed=of_first), quota("other", guaranteed=4), pools=pools, queue=queue)
    world.tell(admitted(replace(spec_of("held", gpu_type="other"), tolerations=("reserved",))))
    running = fill(world)
    world.tell(admitted(spec, 1))
    world.tell(finished(running[0], "b"))
    assert claimed(world) <= {("other", True)}
    world.tell(finished(running[1], "b"))
    assert len(world.nodes_of("own")) == spec.workers


@pytest.mark.parametrize("job", JOBS)
def test_a_type_that_could_not_hold_the_job_is_none_that_it_could_get(job: str) -> None:
    spec, lacks = JOBS[job]
    world = cell_of(lacks, quota("first", guaranteed=4))
    assert [*types_for(world.state, spec)] == ["other"]
    assert fits_in(world.state, spec) == {}


@pytest.mark.parametrize("named", [("train",), ("extra", "train"), ("train", "extra"), ("gone", "train")], ids="+".join)
@pytest.mark.parametrize("job", JOBS)
def test_of_a_job_that_names_pools_the_types_of_each_of_them_count(job: str, named: tuple[str, ...]) -> None:
    spec, lacks = JOBS[job]
    world = cell_of(lacks, quota("first", guaranteed=4), pools=("extra", "train"))
    assert [*types_for(world.state, replace(spec, pools=named))] == ["other"]
    world.tell(admitted(replace(spec, pools=("extra", "train"))))
    assert {*world.nodes_of("own")} == {"b"}


def test_the_types_stand_in_the_order_of_the_pools_that_the_job_names() -> None:
    state = cell_of({}, pools=("extra", "train")).state
    named = [("extra", "train"), ("train", "extra"), ("extra",), ("train",)]
    found = [[*types_for(state, replace(OWN, pools=pools))] for pools in named]
    assert found == [["first", "other"], ["other", "first"], ["first"], ["other"]]


@pytest.mark.parametrize("pools", POOLS, ids=("one pool", "two pools"))
def test_replicas_that_one_type_could_hold_together_may_be_of_any_that_holds_one_of_them(
    pools: tuple[str, str],
) -> None:
    """Of the type that could hold them all their tenant may not have so many."""
    spec = spec_of("own", 1, 4, kind=JobKind.INFERENCE, gang=False)
    world = cell_of({"gpus": 2}, quota("first"), quota("other", limit=2), pools=pools)
    assert [*types_for(world.state, spec)] == ["first", "other"]
    world.tell(admitted(spec))
    assert sorted(world.nodes_of("own")) == ["a", "a", "b", "b"]


OF_WORKERS = ("memory", "CPUs", "GPUs of a node", "labels", "taints")
"""Those of the jobs of which node `a` could hold no worker."""


@pytest.mark.parametrize("job", OF_WORKERS)
def test_a_limit_of_a_type_that_holds_no_worker_keeps_a_gang_to_no_single_type(job: str) -> None:
    spec, lacks = JOBS[job]
    nodes = (node("a", "first", "train", **lacks), node("b", "other", "train"), node("c", "third", "train"))
    world = with_limit("first", 0, *nodes)
    world.tell(admitted(replace(spec, workers=4)))
    assert sorted(world.nodes_of("own")) == ["b", "b", "c", "c"]


IN_A_LEAF = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)


def at(name: str, gpu_type: str, leaf: str | None, **fields: Any) -> NodeJoined:
    where = Position() if leaf is None else Position(leaf=leaf, spine="s", superspine="s")
    return node(name, gpu_type, "train", position=where, **fields)


@pytest.mark.parametrize("leaf", [None, "small"])
@pytest.mark.parametrize("slices", [None, 2], ids=["as a whole", "in slices"])
def test_nor_does_that_of_a_type_that_has_no_node_in_a_unit_that_holds_what_the_gang_requires(
    leaf: str | None, slices: int | None
) -> None:
    """The node of the first type is in no unit that has a name, or in one that holds a single worker."""
    first = at("a", "first", leaf, gpus=2)
    world = with_limit("first", 0, first, at("b", "other", "large"), at("c", "third", "large"))
    world.tell(admitted(replace(OWN, workers=4, topology=replace(IN_A_LEAF, slice_workers=slices))))
    assert sorted(world.nodes_of("own")) == ["b", "b", "c", "c"]


def test_a_unit_may_hold_a_gang_by_nodes_of_several_types() -> None:
    world = with_limit("first", 1, at("a", "first", "large"), at("b", "other", "large"))
    spec = replace(OWN, workers=4, topology=IN_A_LEAF)
    assert [*types_for(world.state, spec)] == ["first", "other"]
    world.tell(admitted(spec))
    assert world.nodes_of("own") == []


@pytest.mark.parametrize("leaf", [None, "small"])
@pytest.mark.parametrize("job", OF_WORKERS)
def test_of_a_gang_that_no_unit_could_hold_the_types_count_that_hold_a_worker(job: str, leaf: str | None) -> None:
    spec, lacks = JOBS[job]
    state = with_limit(
        "first", 0, at("a", "first", "other", **lacks), at("b", "other", leaf), at("c", "third", None)
    ).state
    assert [*types_for(state, replace(spec, workers=3, topology=IN_A_LEAF))] == ["other", "third"]


def test_where_no_type_could_hold_the_job_all_count() -> None:
    world = cell_of({})
    assert [*types_for(world.state, spec_of("large", 5))] == ["first", "other"]
    assert [*types_for(world.state, spec_of("gang", 1, workers=8))] == ["first", "other"]


@pytest.mark.parametrize("pools", POOLS, ids=("one pool", "two pools"))
@pytest.mark.parametrize("job", JOBS)
def test_a_limit_of_a_type_that_could_not_hold_the_job_is_not_why_it_waits(job: str, pools: tuple[str, str]) -> None:
    spec, lacks = JOBS[job]
    world = cell_of(lacks, quota("first", limit=0), pools=pools)
    fill(world)
    world.tell(admitted(spec, 1))
    assert why(world, "own") in (PendingReason.NO_FREE_GPUS, PendingReason.FRAGMENTED)
    assert waits_by_types(world.state, spec) == (["other"], [], {})
    told = why_not(world.state, world.job("own"), (STRICT,), world.now_ms)
    assert PendingReason.QUOTA_REACHED not in told.codes
    assert told.accounts == ()


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_at_its_limit_where_it_is_at_that_of_the_types_that_could_hold_it(job: str) -> None:
    spec, lacks = JOBS[job]
    world = cell_of(lacks, quota("first"), quota("other", limit=1))
    assert limit_reached(world.state, spec) == "ada"


@pytest.mark.parametrize("closed", ["cordoned", "before maintenance"])
def test_an_owner_gets_its_guarantee_of_the_type_that_has_open_nodes(closed: str) -> None:
    world = cell_of({}, quota("first", guaranteed=4), quota("other", guaranteed=4))
    running = fill(world)
    if closed == "cordoned":
        world.tell(Cordon(cell=CELL, node="a"))
    else:
        world.tell(PlanMaintenance(cell=CELL, node="a", begin_ms=10, end_ms=1_000_000))
    world.tell(admitted(replace(OWN, max_run_ms=1_000), 1))
    world.tell(finished(running[0], "b"))
    assert claimed(world) == {("other", True)}
    world.tell(finished(running[1], "b"))
    assert world.nodes_of("own") == ["b"]


@pytest.mark.parametrize("kind", [JobKind.TRAINING, JobKind.INFERENCE])
def test_a_worker_more_is_claimed_of_the_type_that_has_room_beside_those_that_run(kind: JobKind) -> None:
    """The only node of the first type is full of the job's own."""
    world = cell_of({"gpus": 2}, quota("first", guaranteed=4), quota("other", guaranteed=4))
    running = fill(world)
    world.run(replace(OWN, kind=kind, gang=False, workers=2, workers_min=1))
    assert world.nodes_of("own") == ["a"]
    world.tell(finished(running[0], "b"))
    assert claimed(world) == {("other", True)}
    world.tell(finished(running[1], "b"))
    assert world.nodes_of("own") == ["a", "b"]
