"""Quotas that are set one after the other are held against the same rules as all of them together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fallow.shared.cluster.quota.quotas_one_by_one import QuotasOneByOne
from fallow.shared.cluster.quota.rules import LEVELS_MAX, fault_among, fault_in_pools, guaranteed_by_type
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches

NAMES = ["a", "b", "c", "d", "e"]
GPUS = {"h": 3}
"""Of the other type there are no pools, so no rule of these either."""


@st.composite
def quotas_of(draw: st.DrawFn) -> Quota:
    """A quota of one of few tenants, with a parent that may be any name, and numbers that collide."""
    guaranteed_milli = draw(st.sampled_from([0, 500, 1_000, 1_500]))
    return Quota(
        tenant=draw(st.sampled_from(NAMES)),
        gpu_type=draw(st.sampled_from(["h", "v"])),
        guaranteed_milli=guaranteed_milli,
        limit_milli=draw(st.sampled_from([None, max(0, guaranteed_milli - 500), guaranteed_milli, 2_000, 3_000])),
        parent=draw(st.none() | st.sampled_from([*NAMES, "absent"])),
    )


def topmost(order: list[str]) -> list[Quota]:
    """Each of these tenants is guaranteed a half or a third of the pools, and has no parent: not all of them can be."""
    return [Quota(tenant=name, gpu_type="h", guaranteed_milli=1_000 + 500 * (name < "c")) for name in order]


TABLES = st.lists(quotas_of(), max_size=25)
FULL_TABLES = st.builds(list.__add__, st.permutations(NAMES).map(topmost), TABLES)


@settings(max_examples=400)
@given(TABLES | FULL_TABLES)
def test_a_quota_is_set_exactly_if_it_goes_with_all_that_are_there(quotas: list[Quota]) -> None:
    table: dict[Account, Quota] = {}
    one_by_one = QuotasOneByOne(table, NAMES[:2], GPUS)
    is_refused = is_too_much = False
    for quota in quotas:
        merged = {**table, (quota.tenant, quota.gpu_type): quota}
        expected = fault_among(merged, [quota], NAMES[:2])
        if expected is None and guaranteed_by_type(merged)["h"] > guaranteed_by_type(table)["h"]:
            expected = fault_in_pools(guaranteed_by_type(merged), GPUS, GPUS)
            is_too_much |= expected is not None
        assert one_by_one.put(quota) == expected
        is_refused |= expected is not None
        if expected is None:
            table = merged
    reaches("a quota is refused, and several stand", is_refused and len(table) > 1)
    reaches("more would be guaranteed than the pools have", is_too_much)
    again = QuotasOneByOne(table, NAMES[:2], GPUS)
    for quota in table.values():
        assert again.put(quota) is None


def line(*names: str) -> dict[Account, Quota]:
    """Each below the one before it."""
    return {
        (name, "gpu"): Quota(tenant=name, gpu_type="gpu", parent=parent)
        for parent, name in zip([None, *names], names, strict=False)
    }


def test_no_tenant_moves_below_another_with_more_levels_than_there_may_be() -> None:
    upper = line(*(f"u{number}" for number in range(10)))
    lower = line(*(f"l{number}" for number in range(LEVELS_MAX - 9)))
    for parent, is_right in (("u9", False), ("u8", True)):
        quota = Quota(tenant="l0", gpu_type="gpu", parent=parent)
        merged = {**upper, **lower, ("l0", "gpu"): quota}
        assert (fault_among(merged, [quota], ()) is None) == is_right
        assert (QuotasOneByOne({**upper, **lower}, (), {}).put(quota) is None) == is_right
