"""Quotas that do not go together are refused, with whose they are, the field, its value and the rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.quota.rules import (
    LEVELS_MAX,
    contradiction,
    fault_among,
    fault_in_pools,
    guaranteed_by_type,
    top_down,
)
from fallow.shared.cluster.quota.tree import Account
from fallow.shared.events.operations import Quota
from tests.hypothesis_profile import reaches


def share(tenant: str, guaranteed: int = 0, limit: int | None = None, parent: str | None = None) -> Quota:
    limit_milli = None if limit is None else limit * 1000
    return Quota(
        tenant=tenant, gpu_type="gpu", guaranteed_milli=guaranteed * 1000, limit_milli=limit_milli, parent=parent
    )


def table(*quotas: Quota) -> dict[tuple[str, str], Quota]:
    return {(quota.tenant, quota.gpu_type): quota for quota in quotas}


@pytest.mark.parametrize(
    ("quotas", "said"),
    [
        ([share("ada", 4, 3)], "ada/gpu: limit 3 is below the guarantee 4"),
        ([share("ada", parent="bob"), share("bob", parent="ada")], "ada/gpu: cycle: ada -> bob -> ada"),
        (
            [share("ada", parent="absent")],
            "ada/gpu: parent 'absent': is no tenant of the cell file, and has no quota of this GPU type",
        ),
        (
            [share("lab", 4), share("ada", 3, parent="lab"), share("bob", 2, parent="lab")],
            "lab/gpu: guaranteed 4: the children of 'lab' are guaranteed 5 GPUs together",
        ),
        (
            [share("lab", 0, 4), share("ada", 5, parent="lab")],
            "lab/gpu: limit 4: the children of 'lab' are guaranteed 5 GPUs together",
        ),
        (
            [share("top", 4), share("lab", parent="top"), share("ada", 5, parent="lab")],
            "top/gpu: guaranteed 4: the children of 'top' are guaranteed 5 GPUs together",
        ),
    ],
    ids=[
        "a limit below the guarantee",
        "a cycle",
        "an unknown parent",
        "children above a guarantee",
        "children above a limit",
        "grandchildren",
    ],
)
def test_each_rule_is_told(quotas: list[Quota], said: str) -> None:
    assert str(fault_among(table(*quotas), quotas, {"lab": None})) == said


@pytest.mark.parametrize(
    "quotas",
    [
        [share("ada", 4, 4)],
        [share("ada", 4, parent="lab")],
        [share("lab", 0), share("ada", 5, parent="lab")],
        [share("lab", 5, 9), share("ada", 3, parent="lab"), share("bob", 2, parent="lab")],
    ],
    ids=["a limit at the guarantee", "a parent without quota", "a parent that names no guarantee", "all is shared out"],
)
def test_what_goes_together_is_let_be(quotas: list[Quota]) -> None:
    assert fault_among(table(*quotas), quotas, {"lab": None}) is None


@pytest.mark.parametrize(("gpus", "fits"), [({"gpu": 8}, True), ({"gpu": 7}, False), ({}, False)])
def test_no_more_is_guaranteed_than_the_pools_have(gpus: dict[str, int], fits: Any) -> None:
    quotas = table(share("lab", 5), share("ada", 5, parent="lab"), share("bob", 3))
    found = fault_in_pools(guaranteed_by_type(quotas), ["gpu"], gpus)
    assert (found is None) is fits


def test_gpus_are_told_in_whole_numbers_however_many_they_are() -> None:
    fault = fault_in_pools(guaranteed_by_type(table(share("ada", 1_000_384))), ["gpu"], {"gpu": 24_576})
    assert str(fault) == "all tenants together would be guaranteed 1000384 of gpu, the pools have 24576"
    quotas = [share("lab", 0, 1_000_000), share("ada", 1_000_384, parent="lab")]
    told = str(fault_among(table(*quotas), quotas, {}))
    assert told == "lab/gpu: limit 1000000: the children of 'lab' are guaranteed 1000384 GPUs together"


def test_types_that_nobody_asks_for_are_not_looked_at() -> None:
    assert fault_in_pools(guaranteed_by_type(table(share("ada", 5))), [], {}) is None


def test_quotas_are_put_in_force_parents_first() -> None:
    quotas = [share("ada", parent="lab"), share("lab", parent="top"), share("top")]
    assert [quota.tenant for quota in top_down(table(*quotas), quotas)] == ["top", "lab", "ada"]


def line(levels: int) -> list[Quota]:
    """So many tenants, each below the one before it."""
    return [share(f"t{number}", parent=f"t{number - 1}" if number else None) for number in range(levels)]


class Read(dict[Account, Quota]):
    """A table that counts how often a quota is looked up by its account."""

    count = 0

    def get(self, key: Account, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


def test_a_line_of_tenants_has_a_most_of_levels() -> None:
    assert fault_among(table(*line(LEVELS_MAX)), line(LEVELS_MAX), {}) is None
    found = fault_among(table(*line(LEVELS_MAX + 1)), line(LEVELS_MAX + 1), {})
    assert str(found) == "t16/gpu: parent 't15': stands more than 16 levels deep"


def test_a_tenant_that_moves_brings_those_below_it_no_deeper_than_that() -> None:
    moved = share("t0", parent="lab")
    quotas = table(*line(LEVELS_MAX), share("lab"), moved)
    assert "t15/gpu: parent 't14': stands more than 16 levels" in str(fault_among(quotas, [moved], {}))


def test_a_parent_without_a_quota_is_a_level_too() -> None:
    quotas = [share("t0", parent="lab"), *line(LEVELS_MAX)[1:]]
    assert "levels" in str(fault_among(table(*quotas), quotas, {"lab": None}))


def test_a_line_too_deep_is_refused_after_few_looks_at_it() -> None:
    """The time of a check may not grow with the square of what one command names."""
    quotas = Read(table(*reversed(line(5_000))))
    assert "levels deep" in str(fault_among(quotas, list(quotas.values()), {}))
    assert quotas.count <= 2 * LEVELS_MAX


def test_a_long_cycle_is_refused_too() -> None:
    quotas = Read(table(*line(5_000), share("t0", parent="t4999")))
    assert fault_among(quotas, list(quotas.values()), {}) is not None
    assert quotas.count <= 2 * LEVELS_MAX


PARENTS = st.lists(st.integers(0, 40), min_size=LEVELS_MAX + 3, max_size=LEVELS_MAX + 3)
"""For each tenant how many tenants before it its parent stands; where none stands there, it has none."""


def tree(parents: list[int]) -> list[Quota]:
    return [
        share(f"t{number:02}", parent=f"t{number - 1 - back:02}" if back < number else None)
        for number, back in enumerate(parents)
    ]


def levels(quotas: list[Quota]) -> int:
    """How many tenants the longest line has, by the definition."""
    parents = {quota.tenant: quota.parent for quota in quotas}

    def level(tenant: str) -> int:
        parent = parents[tenant]
        return 1 if parent is None else level(parent) + 1

    return max(level(quota.tenant) for quota in quotas)


DEEP = st.lists(st.sampled_from([*[0] * 20, 1, 40]), min_size=LEVELS_MAX + 3, max_size=LEVELS_MAX + 3)


@given(PARENTS | DEEP)
def test_a_tree_is_refused_exactly_if_a_line_of_it_has_more_levels(parents: list[int]) -> None:
    quotas = tree(parents)
    reaches("a line of a tree has too many levels", levels(quotas) > LEVELS_MAX)
    assert (fault_among(table(*quotas), quotas, {}) is not None) is (levels(quotas) > LEVELS_MAX)


ORDERS = st.permutations(range(LEVELS_MAX + 3)) | st.just([*reversed(range(LEVELS_MAX + 3))])


@given(PARENTS | DEEP, PARENTS | DEEP, ORDERS)
def test_no_step_from_one_allowed_tree_to_another_is_forbidden_in_the_log(
    before: list[int], after: list[int], order: list[int]
) -> None:
    """Also where those that were below come to stand above."""
    names = sorted(quota.tenant for quota in tree(before))
    other = {name: names[at] for name, at in zip(names, order, strict=True)}
    old = table(*tree(before))
    new = [share(other[q.tenant], parent=other[q.parent] if q.parent else None) for q in tree(after)]
    is_allowed = not (fault_among(old, list(old.values()), {}) or fault_among(table(*new), new, {}))
    turned = {(q.tenant, q.parent) for q in old.values() if q.parent} & {(q.parent, q.tenant) for q in new}
    reaches("one that was below another comes to stand above it", is_allowed and turned)
    if not is_allowed:
        return
    for quota in top_down(table(*new), new):
        assert contradiction(old, quota) is None
        old[quota.tenant, quota.gpu_type] = quota


@pytest.mark.parametrize(
    ("limit_milli", "guaranteed_milli", "said"),
    [
        (1_005, 1_500, "limit 1.005 is below the guarantee 1.5"),
        (1_500, 2_000, "limit 1.5 is below the guarantee 2"),
        (10, 1_050, "limit 0.01 is below the guarantee 1.05"),
        (0, 10_000, "limit 0 is below the guarantee 10"),
    ],
)
def test_parts_of_gpus_are_told_to_the_thousandth_and_without_zeros_behind(
    limit_milli: int, guaranteed_milli: int, said: str
) -> None:
    quota = Quota(tenant="ada", gpu_type="gpu", limit_milli=limit_milli, guaranteed_milli=guaranteed_milli)
    assert contradiction({}, quota) == said
