"""The history checker finds jobs on nodes whose labels, taints or other jobs should have kept them off."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Level, NodeSpec, NodeStatus, Position, TopologyRequest, Wish
from tests.cluster.worlds.examples import enqueued, place, started
from tests.simulator.history.story import Story


def marked(zone: str | None, *taints: str) -> e.NodeChanged:
    labels = {} if zone is None else {"zone": zone}
    spec = NodeSpec(id="n1", pool="train", gpus=8, labels=labels, taints=taints)
    return e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY)


ONE = started("one", place(0, "n1", 1))
WRONG: dict[str, tuple[str, list[Any]]] = {
    "another zone": ("I3", [marked("b"), enqueued("one", node_labels=("zone=a",)), ONE]),
    "none of the zones": ("I3", [marked("c"), enqueued("one", node_labels=("zone=a|b",)), ONE]),
    "no zone where one is asked for": ("I3", [marked(None), enqueued("one", node_labels=("zone",)), ONE]),
    "a zone where none is wanted": ("I3", [marked("a"), enqueued("one", node_labels=("!zone",)), ONE]),
    "a zone that was ruled out": ("I3", [marked("a"), enqueued("one", node_labels=("zone!=a|b",)), ONE]),
    "one of two taints": ("I3", [marked(None, "hot", "slow"), enqueued("one", tolerations=("hot",)), ONE]),
    "beside one that is alone": (
        "I1",
        [marked(None), enqueued("lone", exclusive=True), started("lone", place(0, "n1", 0)), enqueued("one"), ONE],
    ),
    "alone beside another": (
        "I1",
        [marked(None), enqueued("other"), started("other", place(0, "n1", 0)), enqueued("one", exclusive=True), ONE],
    ),
}

RIGHT: dict[str, list[Any]] = {
    "one of the zones": [marked("b"), enqueued("one", node_labels=("zone=a|b", "zone", "!rack", "zone!=c")), ONE],
    "no zone where one is ruled out": [marked(None), enqueued("one", node_labels=("zone!=a",)), ONE],
    "all taints": [marked(None, "hot", "slow"), enqueued("one", tolerations=("slow", "hot", "wet")), ONE],
    "two workers of one that is alone": [
        marked(None),
        enqueued("one", workers=2, exclusive=True),
        started("one", place(0, "n1", 0), place(1, "n1", 1)),
    ],
    "a taint that came later": [marked(None), enqueued("one"), ONE, marked(None, "hot")],
}


@pytest.mark.parametrize(("invariant", "effects"), WRONG.values(), ids=list(WRONG))
def test_a_job_where_it_should_not_be_is_found(invariant: str, effects: list[Any]) -> None:
    assert invariant in Story().decide(*effects).broken(happened=(), diary=())


@pytest.mark.parametrize("effects", RIGHT.values(), ids=list(RIGHT))
def test_a_job_where_it_may_be_breaks_nothing(effects: list[Any]) -> None:
    assert {"I1", "I3"}.isdisjoint(Story().decide(*effects).broken(happened=(), diary=()))


def racked(number: int, leaf: str | None, spine: str = "s") -> e.NodeChanged:
    spec = NodeSpec(id=f"n{number}", pool="train", gpus=8, position=Position(leaf=leaf, spine=spine))
    return e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY)


def gang(level: Level, size: int | None = None, wish: Wish = Wish.REQUIRED) -> list[Any]:
    """Four workers, one on each of four nodes."""
    places = [place(rank, f"n{rank}", 0) for rank in range(4)]
    wished = TopologyRequest(level=level, wish=wish, slice_workers=size)
    return [enqueued("gang", workers=4, topology=wished), started("gang", *places)]


IN_PAIRS = [racked(0, "a"), racked(1, "a"), racked(2, "b"), racked(3, "b")]
ONE_UNKNOWN = [racked(0, "a"), racked(1, "a"), racked(2, None), racked(3, None)]
SAME_NAME = [racked(0, "a"), racked(1, "a", "t"), racked(2, "b"), racked(3, "b")]


@pytest.mark.parametrize(
    "effects",
    [
        [*IN_PAIRS, *gang(Level.LEAF)],
        [*IN_PAIRS, *gang(Level.NODE, 2)],
        [*ONE_UNKNOWN, *gang(Level.LEAF, 2)],
        [*SAME_NAME, *gang(Level.LEAF, 2)],
    ],
)
def test_a_gang_without_the_place_that_it_requires_is_found(effects: list[Any]) -> None:
    assert "I3" in Story().decide(*effects).broken(happened=(), diary=())


@pytest.mark.parametrize(
    "effects",
    [
        [*IN_PAIRS, *gang(Level.LEAF, 2)],
        [*IN_PAIRS, *gang(Level.SPINE)],
        [*IN_PAIRS, *gang(Level.NODE, 1)],
        [*ONE_UNKNOWN, *gang(Level.LEAF, wish=Wish.PREFERRED)],
    ],
)
def test_a_gang_in_the_place_that_it_requires_breaks_nothing(effects: list[Any]) -> None:
    assert {"I1", "I3"}.isdisjoint(Story().decide(*effects).broken(happened=(), diary=()))
