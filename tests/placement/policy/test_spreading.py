"""Spread keeps the workers of a gang apart; E-Spread does so in a zone of its own only."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobKind, Level, NodeRole, NodeStatus, TopologyRequest
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import MACHINES, Machine, gang, network, node_spec, nodes_of, start

INFERENCE = JobKind.INFERENCE


def with_zone(general: Sequence[Machine], zone: Sequence[Machine], *, labelled: bool = False) -> CellState:
    """A cell under E-Spread; the nodes of the zone come last."""
    state = network(general, "e-spread")
    for number, machine in enumerate(zone, start=len(general)):
        of_zone = {"labels": {"zone": "inference"}} if labelled else {"role": NodeRole.INFERENCE}
        spec = node_spec(number, machine, **of_zone)
        apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    return state


def test_spread_takes_the_emptiest_nodes() -> None:
    state = network([Machine("a", used=1), Machine("a"), Machine("b", used=2), Machine("b")], "spread")
    assert nodes_of(place_gang(state, gang("g", 1, 3))) == ["n001", "n003", "n000"]


def test_spread_goes_round_the_failure_domains_that_the_job_names() -> None:
    state = network([Machine(leaf) for leaf in "aaab"], "spread")
    assert nodes_of(place_gang(state, gang("g", 1, 4, spread=Level.LEAF))) == ["n000", "n003", "n003", "n001"]


def test_first_fit_takes_the_lowest_node_however_empty() -> None:
    state = network([Machine("a"), Machine("a", used=3)], "first-fit")
    assert nodes_of(place_gang(state, gang("g"))) == ["n000"]


def test_binpack_looks_at_nodes_and_not_at_groups() -> None:
    state = network([Machine("a"), Machine("b"), Machine("b", used=4)], "binpack")
    assert nodes_of(place_gang(state, gang("g"))) == ["n000"]


def test_inference_is_spread_over_its_zone() -> None:
    state = with_zone([Machine("a", used=1)], [Machine("b"), Machine("b")])
    assert nodes_of(place_gang(state, gang("g", 1, 2, kind=INFERENCE))) == ["n001", "n002"]


def test_replicas_that_take_whole_nodes_are_packed_into_as_few_groups_of_the_zone_as_hold_them() -> None:
    zone = [Machine(leaf) for leaf in "bcbccb"]
    for spec in (gang("g", 4, 2, kind=INFERENCE), gang("g", 4, 3, kind=INFERENCE)):
        found = nodes_of(place_gang(with_zone([Machine("a")], zone), spec))
        assert {zone[int(name[1:]) - 1].leaf for name in found} in ({"b"}, {"c"})


def test_whole_nodes_that_the_zone_does_not_hold_are_packed_outside() -> None:
    state = with_zone([Machine("a"), Machine("a")], [Machine("b")])
    assert nodes_of(place_gang(state, gang("g", 4, 3, kind=INFERENCE))) == ["n002", "n000", "n001"]


def test_replicas_that_take_whole_nodes_and_name_failure_domains_are_spread() -> None:
    state = with_zone([Machine("a")], [Machine(leaf) for leaf in "bbc"])
    found = nodes_of(place_gang(state, gang("g", 4, 2, kind=INFERENCE, spread=Level.LEAF)))
    assert found == ["n001", "n003"]


def test_a_label_makes_a_zone_too() -> None:
    state = with_zone([Machine("a")], [Machine("b")], labelled=True)
    assert nodes_of(place_gang(state, gang("g", kind=INFERENCE))) == ["n001"]


def test_what_the_zone_does_not_hold_is_packed_into_the_general_pool() -> None:
    state = with_zone([Machine("a"), Machine("a", used=3)], [Machine("b", gpus=2)])
    found = place_gang(state, gang("g", 1, 3, kind=INFERENCE))
    assert nodes_of(found) == ["n002", "n002", "n001"]


def test_training_never_uses_the_zone() -> None:
    state = with_zone([Machine("a", used=4)], [Machine("b")])
    for policy in POLICIES:
        state.policy = CellPolicy(placement=policy)
        assert place_gang(state, gang("g")) is PendingReason.NO_FREE_GPUS
        assert place_gang(state, gang("g", topology=TopologyRequest(level=Level.LEAF))) is PendingReason.NO_FREE_GPUS


def test_a_lent_inference_node_works_for_training() -> None:
    state = with_zone([Machine("a", used=4)], [Machine("b")])
    apply(state, e.NodeLent(node="n001", loan="loan-1", to_pool="other", deadline_ms=None), 0)
    assert nodes_of(place_gang(state, gang("g", pools=("other",)))) == ["n001"]


def test_shares_of_inference_are_spread_in_the_zone_and_packed_outside() -> None:
    state = with_zone([Machine("a")], [Machine("b", gpus=1), Machine("b", gpus=1)])
    spec = gang("g", workers=5, milli=500, kind=INFERENCE)
    found = place_gang(state, spec)
    assert nodes_of(found) == ["n001", "n001", "n002", "n002", "n000"]
    assert not isinstance(found, PendingReason)
    start(state, spec, found)


@given(
    machines=MACHINES,
    gpus=st.integers(1, 5),
    workers=st.integers(1, 6),
    kind=st.sampled_from(JobKind),
    wish=st.none() | st.builds(TopologyRequest, level=st.sampled_from((Level.LEAF, Level.SPINE))),
)
def test_where_no_node_is_in_a_zone_it_is_e_binpack(
    machines: list[Machine], gpus: int, workers: int, kind: JobKind, wish: TopologyRequest | None
) -> None:
    spec = gang("g", gpus, workers, kind=kind, topology=wish)
    packed, spread = (place_gang(network(machines, policy), spec) for policy in ("e-binpack", "e-spread"))
    is_placed = isinstance(packed, tuple) and workers > 1
    reaches("replicas find places where no node is in a zone", is_placed and kind is INFERENCE)
    assert packed == spread
