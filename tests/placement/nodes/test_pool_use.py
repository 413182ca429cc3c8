"""How many nodes of a pool are not lost, and how many of these are in quarantine, is right all through a decision."""

from __future__ import annotations

import pytest

from fallow.services.placement.decision.decision import DecisionBuilder
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus
from tests.cluster.worlds.examples import cell, node

Counts = dict[str, tuple[int, int]]


def changed(id_: str, status: NodeStatus = NodeStatus.READY, *, pool: str = "train") -> e.NodeChanged:
    """The node as it is now; in quarantine where it is cordoned."""
    is_out = status is NodeStatus.CORDONED
    return replace(node(id_, pool=pool), status=status, quarantined=is_out)


READY = [changed(f"n{number}") for number in (1, 2, 3)]
OUT = [changed(f"out-{number}", NodeStatus.CORDONED) for number in (1, 2)]
EXTRA = [changed("x1", pool="extra")]


def lost(id_: str) -> e.LeaseExpired:
    return e.LeaseExpired(node=id_, boot="boot-1")


def decision() -> DecisionBuilder:
    """Five nodes in one pool, of which two are in quarantine, and one in another."""
    return DecisionBuilder(cell(*READY, *OUT, *EXTRA), 0)


def others(builder: DecisionBuilder, id_: str) -> Counts:
    """What the node learns of each pool."""
    nodes = builder.state.nodes
    return {pool: builder.pool_use.others(nodes[id_], pool) for pool in ("train", "extra", "none")}


def test_a_nodes_own_part_is_left_out_of_its_own_pool_alone() -> None:
    builder = decision()
    assert others(builder, "n1") == {"train": (4, 2), "extra": (1, 0), "none": (0, 0)}
    assert others(builder, "out-1") == {"train": (4, 1), "extra": (1, 0), "none": (0, 0)}
    assert others(builder, "x1") == {"train": (5, 2), "extra": (0, 0), "none": (0, 0)}


@pytest.mark.parametrize(
    ("effects", "asks", "expected"),
    [
        ([changed("n2", NodeStatus.CORDONED)], "n1", (4, 3)),
        ([changed("n1", NodeStatus.CORDONED)], "n1", (4, 2)),
        ([changed("out-1")], "n1", (4, 1)),
        ([changed("new")], "n1", (5, 2)),
        ([changed("n2", pool="extra")], "n1", (3, 2)),
        ([changed("x1", NodeStatus.CORDONED, pool="train")], "n1", (5, 3)),
        ([lost("n2")], "n1", (3, 2)),
        ([lost("out-1")], "n1", (3, 1)),
        ([lost("out-1")], "out-1", (4, 1)),
        ([lost("n2"), changed("n2")], "n1", (4, 2)),
        ([lost("out-1"), changed("out-1", NodeStatus.CORDONED)], "n1", (4, 2)),
        ([lost("n2"), e.NodeRemoved(node="n2")], "n1", (3, 2)),
        ([lost("n2"), e.NodeRemoved(node="n2"), changed("n2", NodeStatus.CORDONED)], "n1", (4, 3)),
    ],
)
@pytest.mark.parametrize("asks_between", [False, True])
def test_the_counts_follow_the_effects_of_the_decision(
    effects: list[e.AnyEffect], asks: str, expected: tuple[int, int], *, asks_between: bool
) -> None:
    builder = decision()
    assert others(builder, "n1")["train"] == (4, 2)
    for effect in effects:
        builder.emit(effect)
        if asks_between:
            others(builder, "n1")
    assert others(builder, asks)["train"] == expected
    assert others(DecisionBuilder(builder.state, 0), asks)["train"] == expected


def test_a_node_that_was_lost_before_counts_neither_as_one_in_use_nor_as_one_in_quarantine() -> None:
    builder = DecisionBuilder(cell(*READY, *OUT, lost("n2"), lost("out-1")), 0)
    assert others(builder, "n1")["train"] == (2, 1)
    assert others(builder, "out-1")["train"] == (3, 1)
    builder.emit(e.NodeRemoved(node="out-1"))
    assert others(builder, "n1")["train"] == (2, 1)


def test_effects_from_before_the_first_question_count_once() -> None:
    builder = decision()
    builder.emit(changed("n2", NodeStatus.CORDONED))
    assert others(builder, "n1")["train"] == (4, 3)
