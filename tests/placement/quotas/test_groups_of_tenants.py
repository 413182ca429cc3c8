"""Tenants whose guarantees touch are looked at together, in whatever order the quotas were set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.owners.waiting_owners import groups_of
from fallow.shared.cluster.quota.tree import QuotaTree
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches

Parents = list[int | None]


@st.composite
def forests(draw: st.DrawFn) -> tuple[Parents, list[int]]:
    """The parent of each tenant, by number, and the order in which their quotas are set."""
    parents: Parents = [None]
    for number in range(1, draw(st.integers(1, 8))):
        parents.append(draw(st.one_of(st.just(number - 1), st.none(), st.integers(0, number - 1))))
    leaf_first = list(reversed(range(len(parents))))
    return parents, draw(st.one_of(st.just(leaf_first), st.permutations(leaf_first)))


def root_of(parents: Parents, tenant: int) -> int:
    while (parent := parents[tenant]) is not None:
        tenant = parent
    return tenant


@given(forests())
def test_two_tenants_are_in_one_group_if_one_tenant_stands_above_both(drawn: tuple[Parents, list[int]]) -> None:
    parents, order = drawn
    quotas = {}
    for number in order:
        parent = parents[number]
        above = None if parent is None else f"t{parent}"
        quotas[f"t{number}", "gpu"] = Quota(tenant=f"t{number}", gpu_type="gpu", guaranteed_milli=1000, parent=above)
    groups = groups_of(QuotaTree(quotas, {}).branches)
    many = len({root_of(parents, tenant) for tenant in order})
    reaches("there are several groups, and tenants below others in them", 1 < many < len(order))
    for one in order:
        for other in order:
            is_one = groups[f"t{one}"] is groups[f"t{other}"]
            assert is_one == (root_of(parents, one) == root_of(parents, other))
