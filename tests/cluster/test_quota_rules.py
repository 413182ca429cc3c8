"""Quotas that do not go together are refused, with whose they are, the field, its value and the rule."""

from __future__ import annotations

from typing import Any

import pytest

from shared.cluster.quota_rules import fault_among, fault_in_pools, top_down
from shared.events.operations import Quota


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
        ([share("ada", 4, 3)], "ada/gpu: quota: limit 3000 is below the guarantee 4000"),
        ([share("ada", parent="bob"), share("bob", parent="ada")], "ada/gpu: quota: cycle: ada -> bob -> ada"),
        (
            [share("ada", parent="nobody")],
            "ada/gpu: parent 'nobody': is no tenant of the cell file, and has no quota of this GPU type",
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
    found = fault_in_pools(quotas, ["gpu"], gpus)
    assert (found is None) is fits


def test_types_that_nobody_asks_for_are_not_looked_at() -> None:
    assert fault_in_pools(table(share("ada", 5)), [], {}) is None


def test_quotas_are_put_in_force_parents_first() -> None:
    quotas = [share("ada", parent="lab"), share("lab", parent="top"), share("top")]
    assert [quota.tenant for quota in top_down(table(*quotas), quotas)] == ["top", "lab", "ada"]
