"""Which idle GPUs count for quotas."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.capacity.gpu_types import idle_anywhere_milli, idle_milli
from fallow.shared.cluster.capacity.taken_alone import taken_alone, with_whole_nodes
from fallow.shared.events.effects import QuotaSet
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU
from fallow.shared.events.operations import Quota
from tests.cluster.worlds.examples import cell, enqueued, node, place, started, then


@pytest.mark.parametrize("has_others", [False, True])
def test_what_is_idle_on_a_node_that_is_to_become_another_one_is_of_no_use_whatever_types_its_pool_has(
    *, has_others: bool
) -> None:
    big = node("n3")
    others = (replace(big, spec=replace(big.spec, gpu_type="big")),) if has_others else ()
    state = cell(node("n1"), node("n2"), *others, enqueued("job"), started("job", place(0, "n1", 0)))
    assert idle_milli(state, "gpu") == 15 * GPU
    then(state, replace(node("n1"), offered=node("n1", gpus=4).spec))
    assert idle_milli(state, "gpu") == 8 * GPU
    assert idle_anywhere_milli(state, "gpu") == 15 * GPU


@pytest.mark.parametrize("has_others", [False, True])
def test_nor_is_what_is_idle_beside_an_exclusive_job(*, has_others: bool) -> None:
    big = node("n3")
    others = (replace(big, spec=replace(big.spec, gpu_type="big")),) if has_others else ()
    alone = enqueued("alone", exclusive=True)
    state = cell(node("n1"), node("n2"), *others, alone, started("alone", place(0, "n1", 0)))
    assert (idle_milli(state, "gpu"), idle_anywhere_milli(state, "gpu")) == (8 * GPU, 8 * GPU)
    assert taken_alone(state) == {("ada", "gpu"): 7 * GPU}


def test_it_counts_as_taken_by_its_tenant_only_where_that_is_asked() -> None:
    quota = Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=8 * GPU, lends=False)
    state = cell(node("n1"), QuotaSet(quota=quota), enqueued("alone", exclusive=True))
    then(state, started("alone", place(0, "n1", 0)))
    cohort = state.tree.cohorts["gpu"]
    cohort.touched.clear()
    before = (dict(state.usage), cohort.numbers, dict(cohort.touched))
    with with_whole_nodes(state):
        assert cohort.home_idle_milli == 0
    assert (dict(state.usage), cohort.numbers, dict(cohort.touched)) == before
    assert (cohort.home_idle_milli, state.tree.differs_from_recount()) == (7 * GPU, [])
