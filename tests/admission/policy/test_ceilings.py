"""What no quota of the cell file will ever allow is refused at once, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.services.admission.policy.ceilings import Ceilings, priorities_of
from fallow.services.admission.policy.resolve import Home
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Queue, Tenant, TenantQuota
from fallow.shared.events.fields.values import JobSpec, Resources

CELL = CellPart(name="main", ordinal=0, pools=(Pool(name="train", gpus=100),), queues=(Queue(name="default"),))
FILE = CellFile(
    cells=(CELL,),
    tenants=(
        Tenant(name="free"),
        Tenant(name="walled", quotas=(TenantQuota(guaranteed=20, lends=False),)),
        Tenant(name="limited", quotas=(TenantQuota(guaranteed=10, limit=30),)),
        Tenant(name="own", quotas=(TenantQuota(guaranteed=10, borrows=False),)),
        Tenant(name="little", quotas=(TenantQuota(guaranteed=10, borrow_limit=5),)),
        Tenant(name="child", parent="limited", quotas=(TenantQuota(guaranteed=2),)),
    ),
)


def most(tenant: str, **more: Any) -> int:
    """The most workers of one GPU that are let in."""
    ceilings, home = Ceilings(FILE), Home(CELL, "default", CELL.pools)
    wishes = [
        JobSpec(id="j", tenant=tenant, workers=n, resources=Resources(gpu_milli=1000), **more) for n in range(1, 101)
    ]
    return sum(ceilings.rejection(wish, home, CELL.pools) is None for wish in wishes)


@pytest.mark.parametrize(
    ("tenant", "workers"),
    [("free", 80), ("walled", 100), ("limited", 30), ("own", 10), ("little", 15), ("child", 30)],
)
def test_a_job_may_ask_for_all_that_its_tenant_could_ever_use(tenant: str, workers: int) -> None:
    assert most(tenant) == workers


@pytest.mark.parametrize(("tenant", "workers"), [("free", 50), ("walled", 20), ("limited", 8), ("child", 2)])
def test_one_that_may_not_be_preempted_for_what_is_guaranteed(tenant: str, workers: int) -> None:
    assert most(tenant, preemptible=False) == workers


def test_one_that_can_do_with_less_for_more() -> None:
    assert most("own", workers_min=1) == 100
    assert most("own", gang=False) == 100


def test_a_ceiling_of_priorities_holds_for_all_tenants_below_and_the_lowest_counts() -> None:
    tenants = (
        Tenant(name="guest", parent="lab", max_priority=9),
        Tenant(name="student", parent="lab", max_priority=-1),
        Tenant(name="lab", max_priority=5),
        Tenant(name="other"),
        Tenant(name="some", parent="other", max_priority=0),
    )
    found = priorities_of(CellFile(cells=(CELL,), tenants=tenants))
    assert found == {"lab": 5, "guest": 5, "student": -1, "some": 0}


def test_the_rejection_tells_the_numbers() -> None:
    spec = JobSpec(id="j", tenant="own", workers=11, resources=Resources(gpu_milli=1000))
    found = Ceilings(FILE).rejection(spec, Home(CELL, "default", CELL.pools), CELL.pools)
    assert found is not None
    assert (found.field, found.value, found.wanted, found.allowed) == ("workers", "11", 11, 10)


def test_without_quotas_nothing_is_refused() -> None:
    file = FILE.model_copy(update={"tenants": (Tenant(name="free"),)})
    spec = JobSpec(id="j", tenant="free", workers=100, resources=Resources(gpu_milli=1000))
    assert Ceilings(file).rejection(spec, Home(CELL, "default", CELL.pools), CELL.pools) is None
