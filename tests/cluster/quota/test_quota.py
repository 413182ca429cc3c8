"""Use is counted along the tree of tenants, whatever moves in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.checks.invariants import usage_adds_up
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.operations import Quota
from tests.cluster.worlds.examples import TWO_GPUS, cell, enqueued, node, place, quota, requeued, started, then
from tests.cluster.worlds.histories import history
from tests.hypothesis_profile import reaches


def running_in(*quotas: e.QuotaSet) -> CellState:
    return cell(node("n1"), *quotas, enqueued("job", resources=TWO_GPUS), started("job", place(0, "n1", 0, 1)))


def test_use_counts_at_the_tenant_and_at_all_above_it() -> None:
    state = running_in(
        quota("firm", limit=8), quota("lab", limit=8, parent="firm"), quota("ada", limit=8, parent="lab")
    )
    assert state.usage == {("ada", "gpu"): 2000, ("lab", "gpu"): 2000, ("firm", "gpu"): 2000}


def test_use_follows_a_tenant_to_another_parent() -> None:
    state = running_in(quota("ada", limit=None, parent="lab"))
    then(state, quota("ada", limit=None, parent="firm"))
    assert state.usage == {("ada", "gpu"): 2000, ("firm", "gpu"): 2000}


def test_use_follows_when_a_parent_gets_a_parent() -> None:
    state = running_in(quota("ada", limit=None, parent="lab"))
    then(state, quota("lab", limit=None, parent="firm"))
    assert state.usage == {("ada", "gpu"): 2000, ("lab", "gpu"): 2000, ("firm", "gpu"): 2000}
    assert then(state, requeued("job")).usage == {}


def test_a_lowered_limit_evicts_nobody() -> None:
    state = then(running_in(quota("ada", limit=2)), quota("ada", limit=1))
    assert state.usage == {("ada", "gpu"): 2000}
    assert state.jobs["job"].workers


@given(seed=st.integers(0, 2**32), moves=st.lists(st.integers(0, 2**32), max_size=6))
def test_use_adds_up_however_tenants_are_moved(seed: int, moves: list[int]) -> None:
    state = history(seed, 30).state
    is_moved = False
    for move in moves:
        parent = (None, "firm", "lab")[move % 3]
        tenant = ("ada", "bob", "eve")[move // 3 % 3]
        gpu_type = ("a100", "h100")[move // 9 % 2]
        before = state.usage.copy()
        then(state, e.QuotaSet(quota=Quota(tenant=tenant, gpu_type=gpu_type, parent=parent)))
        is_moved |= state.usage != before
    reaches("a tenant that uses GPUs is moved to another parent", is_moved)
    assert usage_adds_up(state) == []
