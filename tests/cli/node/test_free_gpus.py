"""What is free counts only where new work may come: the same in every command."""

from __future__ import annotations

import pytest

from fallow.cli.node.nodes import gpus_free
from fallow.cli.quota.rows import as_object
from fallow.services.placement.explain.capacity import pool_room
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeStatus, Resources
from fallow.shared.events.operations import Quota
from fallow.shared.view.row_text import node_row, node_text
from tests.cluster.worlds.examples import cell, enqueued, node, then

WHOLE = Resources(gpu_milli=8_000)
CLOSED = {
    "lost": e.LeaseExpired(node="n1", boot="boot-1"),
    "silent": e.NodeSilent(node="n1", boot="boot-1", silent_wall_ms=15_000),
    "draining": NodeStatus.DRAINING,
    "cordoned": NodeStatus.CORDONED,
}


def a_cell(closed: str) -> CellState:
    how = CLOSED[closed]
    effect = how if isinstance(how, e.Effect) else replace(node("n1"), status=how)
    share = e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu"))
    return then(cell(share, *(node(f"n{number}") for number in range(3))), effect)


@pytest.mark.parametrize("closed", CLOSED)
def test_what_is_free_on_a_node_that_takes_nothing_is_told_apart(closed: str) -> None:
    state = a_cell(closed)
    rows = [node_row(node_text(each)) for each in state.nodes.values()]
    assert gpus_free(rows) == "16 GPUs free, 8 more on nodes that take nothing"
    assert [row["available_milli"] for row in as_object(state)["quotas"]] == [16_000]
    assert [row.takes_work for row in rows] == [each.takes_work for each in state.nodes.values()]


def test_where_all_nodes_take_work_one_number_is_enough() -> None:
    state = cell(node("n1"))
    assert gpus_free([node_row(node_text(each)) for each in state.nodes.values()]) == "8 GPUs free"


def test_what_is_idle_on_a_closed_node_is_not_said_to_be_lent() -> None:
    state = then(a_cell("draining"), e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", guaranteed_milli=24_000)))
    (row,) = as_object(state)["quotas"]
    assert (row["available_milli"], row["lent_milli"]) == (16_000, 0)


def test_a_lost_node_holds_nothing_even_empty() -> None:
    state = then(a_cell("lost"), enqueued("gang", workers=3, resources=WHOLE))
    spec: JobSpec = state.jobs["gang"].spec
    assert pool_room(state, next(iter(state.pools)), spec).workers_ever == 2
