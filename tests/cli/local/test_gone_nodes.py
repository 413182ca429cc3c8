"""Which nodes `fallow up` declares lost: those that it runs no more, and no others."""

from __future__ import annotations

import pytest

from fallow.local.gone_nodes import gone, virtual_pools
from fallow.shared.cluster.model.config import CellFile
from fallow.shared.events.fields.values import LoanStatus, NodeRole, NodeStatus
from fallow.shared.view.rows import NodeRow

POOLS = frozenset({"virtual"})


def row(
    node: str, pool: str = "virtual", status: NodeStatus = NodeStatus.READY, silent_wall_ms: int = 15_000
) -> NodeRow:
    return NodeRow(
        id=node,
        pool=pool,
        home_pool=pool,
        gpu_type="gpu",
        role=NodeRole.TRAINING,
        status=status,
        gpus=8,
        gpus_free=8,
        gpus_failed=(),
        allocated_milli=0,
        cpu_milli=0,
        cpu_used_milli=0,
        memory_mib=0,
        memory_used_mib=0,
        jobs=(),
        loan=None,
        loan_status=LoanStatus.HOME,
        loan_deadline_ms=None,
        drain_deadline_ms=None,
        reason="",
        silent_wall_ms=silent_wall_ms,
    )


def test_silent_virtual_nodes_that_are_not_run_any_more_are_gone() -> None:
    assert gone([row("n1"), row("n2"), row("n3")], {"n1"}, POOLS) == ["n2", "n3"]


@pytest.mark.parametrize(
    "other",
    [
        row("n1"),
        row("n2", silent_wall_ms=0),
        row("n2", pool="machines"),
        row("n2", status=NodeStatus.LOST),
    ],
    ids=["one of our own", "one that speaks", "one of a pool of real machines", "one that is lost"],
)
def test_no_other_node_is_gone(other: NodeRow) -> None:
    assert gone([other], {"n1"}, POOLS) == []


def test_pools_of_real_machines_are_not_virtual() -> None:
    pools = [
        {"name": "virtual", "gpus": 8, "gpus_per_node": 8},
        {"name": "machines", "gpus": 8, "gpus_per_node": 8, "driver": "process"},
    ]
    file = CellFile.model_validate(
        {"cells": [{"name": "main", "ordinal": 0, "pools": pools}], "tenants": [{"name": "acme"}]}
    )
    assert virtual_pools(file) == {"main": POOLS}
