"""Which replicas a service gives up first, as looking at all that are left says it for one after the other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.runs.surplus import in_order_of_cost
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.job import Job
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.effects import NodeChanged
from fallow.shared.events.fields.values import (
    GPU,
    JobKind,
    JobSpec,
    Level,
    NodeSpec,
    NodeStatus,
    Position,
    RunStatus,
    WorkerPlace,
)
from tests.hypothesis_profile import reaches

LEAVES = st.sampled_from(("a", "b", None))
NODES = st.lists(st.tuples(LEAVES, st.booleans()), min_size=1, max_size=5)
REPLICAS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12)


def service(replicas: list[tuple[int, bool]], nodes: int, level: Level | None) -> Job:
    spec = JobSpec(id="web", tenant="ada", kind=JobKind.INFERENCE, gang=False, workers=100, spread=level)
    job = Job(spec, 0, "0" * 32)
    job.workers = tuple(
        WorkerPlace(rank=rank, node=f"n{on % nodes}", devices=(0,), gpu_milli=GPU)
        for rank, (on, _) in enumerate(replicas)
    )
    job.runs = {
        str(rank): RunStatus.STARTING if starts else RunStatus.RUNNING for rank, (_, starts) in enumerate(replicas)
    }
    return job


def one_after_the_other(state: CellState, job: Job, level: Level | None) -> list[int]:
    left, found = list(job.workers), list[int]()
    while left:
        domains = {place.rank: domain_of(state, place.node, level) for place in left}
        many = Counter(domains.values())
        first = max(
            left,
            key=lambda place, domains=domains, many=many: (  # type: ignore[misc]
                state.nodes[place.node].status is NodeStatus.DRAINING,
                job.runs[str(place.rank)] is RunStatus.STARTING,
                many[domains[place.rank]],
                place.rank,
            ),
        )
        left.remove(first)
        found.append(first.rank)
    return found


def domain_of(state: CellState, node: str, level: Level | None) -> str:
    leaf = state.nodes[node].spec.position.leaf
    return node if level is None or leaf is None else f"leaf {leaf}"


@given(nodes=NODES, replicas=REPLICAS, level=st.sampled_from((None, Level.LEAF)))
def test_each_goes_as_if_those_before_it_were_gone(
    nodes: list[tuple[str | None, bool]], replicas: list[tuple[int, bool]], level: Level | None
) -> None:
    state = CellState("cell-a")
    for number, (leaf, drains) in enumerate(nodes):
        spec = NodeSpec(id=f"n{number}", pool="train", gpus=8, position=Position(leaf=leaf))
        status = NodeStatus.DRAINING if drains else NodeStatus.READY
        apply(state, NodeChanged(spec=spec, boot="boot-1", status=status), 0)
    job = service(replicas, len(nodes), level)
    used = {state.nodes[place.node].status for place in job.workers}
    reaches("a service has replicas on nodes that drain and on others", len(used) > 1)
    found = [place.rank for place in in_order_of_cost(state, job, job.workers)]
    assert found == one_after_the_other(state, job, level)


def test_ten_thousand_replicas_are_looked_at_a_few_times_each() -> None:
    """By the square of their number this would take minutes, in which nothing else of the cell is decided."""
    state = CellState("cell-a")
    for number in range(50):
        spec = NodeSpec(id=f"n{number}", pool="train", gpus=8)
        apply(state, NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    job = service([(at, at % 3 == 0) for at in range(10_000)], 50, None)
    assert len(list(in_order_of_cost(state, job, job.workers))) == 10_000
