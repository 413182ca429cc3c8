"""Untyped jobs in a pool whose nodes are of several GPU types, where of some of these not so much may be used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.capacity.gpu_types import gpu_types_of
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus
from fallow.shared.events.operations import CellPolicy, Quota
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import POOL, gang, start

POLICIES = st.sampled_from(("best-fit", "first-fit", "spread", "e-binpack"))
Types = list[tuple[str, int]]
MIXED = st.lists(st.tuples(st.sampled_from(("a100", "h100")), st.integers(1, 4)), min_size=1, max_size=5)
QUOTAS = st.fixed_dictionaries({}, optional={name: st.integers(0, 6) for name in ("a100", "h100")})


def cell(nodes: Types, limits: dict[str, int], policy: str = "best-fit") -> CellState:
    """A pool of nodes of a type and so many GPUs each, and a tenant's limits by type."""
    state = CellState("c")
    apply(state, e.PolicySet(policy=CellPolicy(placement=policy)), 0)
    for number, (gpu_type, gpus) in enumerate(nodes):
        spec = NodeSpec(id=f"n{number}", pool=POOL, gpus=gpus, gpu_type=gpu_type)
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    for gpu_type, limit in limits.items():
        apply(state, e.QuotaSet(quota=Quota(tenant="ada", gpu_type=gpu_type, limit_milli=limit * 1000)), 0)
    return state


def test_what_is_not_allowed_of_one_type_keeps_a_job_from_no_other() -> None:
    state = cell([("h100", 1), ("a100", 4)], {"h100": 0})
    found = place_gang(state, gang("job", 1))
    assert not isinstance(found, PendingReason)
    assert [place.node for place in found] == ["n1"]


def test_a_gang_is_on_several_types_where_it_may_use_each_and_else_on_one() -> None:
    nodes: Types = [("h100", 2), ("a100", 2)]
    assert not isinstance(place_gang(cell(nodes, {"h100": 4}), gang("job", 1, 4)), PendingReason)
    assert place_gang(cell(nodes, {"h100": 2}), gang("job", 1, 4)) is PendingReason.QUOTA_REACHED


def test_a_type_of_which_the_last_node_is_gone_is_none_of_the_pool() -> None:
    state = cell([("h100", 2), ("a100", 2)], {})
    assert list(gpu_types_of(state, state.pools[POOL])) == ["h100", "a100"]
    other = NodeSpec(id="n0", pool=POOL, gpus=2, gpu_type="a100")
    apply(state, e.NodeChanged(spec=other, boot="boot-2", status=NodeStatus.READY), 0)
    assert list(gpu_types_of(state, state.pools[POOL])) == ["a100"]


@given(
    nodes=MIXED,
    limits=QUOTAS,
    policy=POLICIES,
    jobs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=8),
)
def test_what_does_not_fit_once_does_not_fit_after_other_starts(
    nodes: Types, limits: dict[str, int], policy: str, jobs: list[tuple[int, int]]
) -> None:
    state, blocked = cell(nodes, limits, policy), list[JobSpec]()
    is_passed = False
    for number, (gpus, workers) in enumerate(jobs):
        spec = gang(f"job-{number}", gpus, workers)
        found = place_gang(state, spec)
        if isinstance(found, PendingReason):
            blocked.append(spec)
        else:
            start(state, replace(spec, id=f"job-{number}"), found)
            is_passed |= bool(blocked)
        for waiting in blocked:
            assert isinstance(place_gang(state, waiting), PendingReason)
    reaches("a job starts after one that does not fit", is_passed)
