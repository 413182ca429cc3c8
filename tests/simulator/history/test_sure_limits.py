"""Whether what one job uses may be missing to another one below a limit of both."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus
from fallow.shared.events.operations import Quota
from fallow.simulator.history.books import Books, NodePage
from fallow.simulator.history.rules.tenants.sure_limits import are_under_one_limit, waits_for_room

NOT_BOUNDED: list[dict[str, Any]] = [
    {},
    {"guaranteed_milli": 4_000},
    {"lends": False},
    {"lend_limit_milli": 0},
    {"weight": 0},
]


def books_of(**of_lab: Any) -> Books:
    """Tenants ada and bob stand below the lab; eve stands beside it."""
    quotas = [Quota(tenant="lab", gpu_type="gpu", **of_lab)]
    quotas += [Quota(tenant=name, gpu_type="gpu", parent="lab", limit_milli=0) for name in ("ada", "bob")]
    return Books("cell", quotas={(quota.tenant, quota.gpu_type): quota for quota in quotas})


def is_told(books: Books, *tenants: str) -> bool:
    one, other = (JobSpec(id=f"of-{tenant}", tenant=tenant) for tenant in tenants)
    return are_under_one_limit(books, one, other)


@pytest.mark.parametrize("bound", [{"limit_milli": 0}, {"borrows": False}, {"borrow_limit_milli": 0}])
def test_a_limit_and_a_bound_on_what_is_borrowed_are_limits_of_all_below(bound: dict[str, Any]) -> None:
    books = books_of(**bound)
    assert is_told(books, "ada", "bob")
    assert is_told(books, "bob", "ada")
    assert not is_told(books, "ada", "eve")


@pytest.mark.parametrize("rule", NOT_BOUNDED)
def test_what_bounds_nobody_is_no_limit(rule: dict[str, Any]) -> None:
    books = books_of(**rule)
    assert not is_told(books, "ada", "bob")
    assert is_told(books, "ada", "ada"), "its own limit"


@pytest.mark.parametrize(
    ("status", "is_room"), [(NodeStatus.READY, True), (NodeStatus.CORDONED, False), (NodeStatus.DRAINING, False)]
)
def test_beside_what_is_guaranteed_to_others_only_nodes_count_that_take_new_work(
    status: NodeStatus, *, is_room: bool
) -> None:
    """Six GPUs beside four that are guaranteed: two nodes of eight have as many, one alone never has."""
    books = Books("cell", quotas={("eve", "gpu"): Quota(tenant="eve", gpu_type="gpu", guaranteed_milli=4_000)})
    for name, its in (("n1", NodeStatus.READY), ("n2", status)):
        spec = NodeSpec(id=name, pool="train", gpus=8, gpu_type="gpu")
        books.nodes[name] = NodePage(spec, "boot-1", its, held=dict.fromkeys(range(8), 1_000))
    job = JobSpec(id="job", tenant="ada", workers=6, preemptible=True)
    assert waits_for_room(books, job, "gpu") is is_room
