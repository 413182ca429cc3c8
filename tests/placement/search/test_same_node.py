"""The node that was the only one to change: where it is taken at once, a search through all finds the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import place_gang
from fallow.services.placement.search.same_node import place_on_same
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, NodeStatus, TopologyRequest
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import POOL, Machine, gang, node_spec, start

PACKING = ("best-fit", "e-binpack", "e-spread")
LIMITS = st.sampled_from((None, None, 4, 9))
NODES = st.lists(
    st.builds(
        Machine,
        leaf=st.sampled_from(("a", "b")),
        gpus=st.sampled_from((2, 4, 8)),
        cpu=st.sampled_from((3, 8)),
        memory=st.sampled_from((2, 8)),
        has_islands=st.booleans(),
        gpu_type=st.sampled_from(("gpu", "gpu", "tpu")),
        zone=st.sampled_from((None, None, "z1", "inference")),
        taints=st.sampled_from(((), (), ("hot",))),
    ),
    min_size=2,
    max_size=6,
)
ANY_JOB = st.builds(
    gang,
    job=st.just("job"),
    gpus=st.sampled_from((1, 1, 1, 2, 3)),
    workers=st.sampled_from((1, 1, 1, 1, 1, 2)),
    cpu=st.integers(0, 2),
    memory=st.sampled_from((0, 0, 1)),
    gpu_type=st.sampled_from((None, None, "gpu", "tpu")),
    node_labels=st.sampled_from(((), (), (), ("zone!=z1",), ("zone",))),
    tolerations=st.sampled_from((("hot",), ("hot",), ())),
    exclusive=st.sampled_from((False, False, False, True)),
    kind=st.sampled_from((JobKind.TRAINING, JobKind.TRAINING, JobKind.INFERENCE)),
    pools=st.sampled_from(((), (POOL,), (POOL,), ("other", POOL))),
    topology=st.sampled_from((None, None, None, TopologyRequest(level=Level.NODE))),
)
PLAIN = st.builds(gang, job=st.just("job"), gpus=st.sampled_from((1, 1, 1, 2)), pools=st.just((POOL,)))
"""Such jobs go one after the other to one node."""

STEPS = st.one_of(
    [st.lists(st.tuples(job, st.integers(0, 40)), min_size=4, max_size=16) for job in (ANY_JOB, PLAIN, PLAIN | ANY_JOB)]
)
"""Jobs one after the other; with low numbers something happens to the node of the last one before the next comes."""


def cell(machines: list[Machine], policy: str, limit: int | None = None) -> CellState:
    """A cell of these nodes; each third one is in another pool."""
    state = CellState("cell-a")
    apply(state, e.PolicySet(policy=CellPolicy(placement=policy)), 0)
    for number, machine in enumerate(machines):
        spec = replace(node_spec(number, machine), pool=POOL if number % 3 else "other")
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    if limit is not None:
        apply(state, e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", limit_milli=limit * 1000)), 0)
    return state


@given(machines=NODES, policy=st.sampled_from(PACKING), steps=STEPS, limit=LIMITS)
def test_it_is_the_place_that_a_search_finds(
    machines: list[Machine], policy: str, steps: list[tuple[JobSpec, int]], limit: int | None
) -> None:
    state = cell(machines, policy, limit)
    is_found = False
    for number, (job, event) in enumerate(steps):
        spec = replace(job, id=f"job-{number}")
        happens(state, event)
        at_once = place_on_same(state, spec)
        is_found |= bool(at_once)
        assert state.pools, "now all of them are counted"
        assert not place_on_same(state, spec)
        found = place_gang(state, spec)
        if at_once:
            assert found == (at_once[0],)
        if not isinstance(found, PendingReason):
            start(state, spec, found)
    reaches("a job has its place without a search", is_found)


@given(machines=NODES, policy=st.sampled_from(PACKING), steps=STEPS, most=st.integers(1, 9))
def test_several_that_are_alike_get_the_places_that_searches_would_find_one_by_one(
    machines: list[Machine], policy: str, steps: list[tuple[JobSpec, int]], most: int
) -> None:
    state = cell(machines, policy)
    many = 0
    for number, (job, _) in enumerate(steps):
        for at, place in enumerate(place_on_same(state, job, most)):
            assert state.pools, "now all of them are counted"
            assert place_gang(state, job) == (place,)
            start(state, replace(job, id=f"job-{number}-{at}"), (place,))
            many = max(many, at + 1)
        assert state.pools
        found = place_gang(state, job)
        if not isinstance(found, PendingReason):
            start(state, replace(job, id=f"job-{number}"), found)
    reaches("several jobs that are alike have their places without a search", many > 1)


def happens(state: CellState, event: int) -> None:
    """To the node that is not counted yet: it is cordoned, its maintenance comes near, or a job on it ends."""
    node = state.capacity.only_changed
    if node is None:
        return
    if event == 0:
        apply(state, e.NodeChanged(spec=node.spec, boot=node.boot, status=NodeStatus.CORDONED), 0)
    elif event == 1:
        apply(state, e.MaintenanceSet(node=node.id, begin_ms=10, end_ms=20), 0)
    elif event == 2 and node.jobs:
        apply(state, e.JobFinished(job=next(iter(node.jobs)), attempt=1), 0)


def placed(state: CellState, spec: JobSpec) -> str:
    """Start the job; its node."""
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason)
    start(state, spec, found)
    return found[0].node


@pytest.mark.parametrize("policy", PACKING)
def test_jobs_of_different_needs_fill_one_node_without_a_search(policy: str) -> None:
    state = cell([Machine("a"), Machine("a", gpus=8, cpu=8), Machine("a", gpus=8, cpu=8)], policy)
    first = placed(state, gang("first", 1, cpu=1, pools=(POOL,)))
    for number, (gpus, cpu) in enumerate(((2, 1), (1, 3), (4, 2))):
        spec = gang(f"job-{number}", gpus, cpu=cpu, pools=(POOL,))
        (found,) = place_on_same(state, spec)
        assert found.node == first
        start(state, spec, (found,))
    assert not place_on_same(state, gang("one-more", 1, pools=(POOL,))), "it is full"


def test_where_another_node_is_as_tight_or_another_pool_comes_first_there_is_a_search() -> None:
    state = cell(
        [Machine("a"), Machine("a", gpus=8), Machine("a", gpus=4), Machine("a"), Machine("a", gpus=8)], "e-binpack"
    )
    spec = gang("job", 4, pools=(POOL,))
    assert [placed(state, replace(spec, id=f"job-{number}")) for number in range(2)] == ["n002", "n001"]
    assert place_on_same(state, spec)
    assert not place_on_same(state, replace(spec, pools=("other", POOL)))
    assert placed(state, gang("small", 4, pools=(POOL,))) == "n001"
    assert [placed(state, gang(f"four-{number}", 4, pools=("other",))) for number in range(2)] == ["n000", "n003"]
    assert placed(state, spec) == "n004"
