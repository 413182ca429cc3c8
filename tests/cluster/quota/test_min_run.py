"""The minimum run time between two tenants is set where their lines part."""

from __future__ import annotations

import pytest

from fallow.shared.cluster.quota.min_run import min_run_ms
from fallow.shared.events.operations import Quota

TREE = {
    (tenant, "gpu"): Quota(tenant=tenant, gpu_type="gpu", parent=parent, min_run_ms=least_ms)
    for tenant, parent, least_ms in (
        ("b", "a", 600),
        ("c", "b", None),
        ("d", "b", 60),
        ("leaf-1", "c", 0),
        ("leaf-2", "c", 180),
        ("leaf-3", "d", None),
        ("other", None, None),
    )
}


@pytest.mark.parametrize(
    ("preemptor", "victim", "least_ms"),
    [
        ("leaf-1", "leaf-3", 60),
        ("leaf-1", "leaf-2", 180),
        ("leaf-3", "leaf-1", 600),
        ("leaf-2", "leaf-2", 180),
        ("leaf-1", "c", 600),
        ("c", "leaf-1", 0),
        ("other", "leaf-3", 0),
        ("leaf-3", "other", 0),
        ("stranger", "another", 0),
    ],
)
def test_what_holds_between_two_tenants(preemptor: str, victim: str, least_ms: int) -> None:
    assert min_run_ms(TREE, preemptor, victim, "gpu") == least_ms
