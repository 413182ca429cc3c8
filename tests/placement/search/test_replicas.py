"""Replicas of a service: spread over failure domains, in the inference zone first, beside those that there are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.replicas import place_replicas
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobKind, JobSpec, Level, Resources, WorkerPlace
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import POOL, Machine, network


def service(gpus: int = 1, spread: Level | None = None, milli: int | None = None) -> JobSpec:
    wants = Resources(gpu_milli=gpus * GPU if milli is None else milli)
    return JobSpec(
        id="web", tenant="ada", workers=9, gang=False, kind=JobKind.INFERENCE, spread=spread, resources=wants
    )


def placed(state: CellState, spec: JobSpec, most: int, held: Sequence[WorkerPlace] = ()) -> list[WorkerPlace]:
    return place_replicas(state, state.pools[POOL], spec, held, most)


def nodes(places: Sequence[WorkerPlace]) -> list[str]:
    return [place.node for place in places]


def on(node: str) -> WorkerPlace:
    return WorkerPlace(rank=0, node=node, devices=(0,), gpu_milli=GPU)


def test_the_zone_is_used_first_and_its_nodes_in_turn() -> None:
    state = network([Machine("a"), Machine("b", zone="inference"), Machine("b", zone="inference")])
    assert nodes(placed(state, service(), 3)) == ["n001", "n002", "n001"]


def test_replicas_that_take_whole_nodes_are_packed_into_the_fullest_group_of_the_zone() -> None:
    machines = [Machine("a"), *(Machine(leaf, zone="inference") for leaf in "bcbcc")]
    assert nodes(placed(network(machines), service(4), 2)) == ["n001", "n003"]
    assert nodes(placed(network(machines), service(4), 6)) == ["n001", "n003", "n002", "n004", "n005", "n000"]


def test_replicas_that_are_there_already_count() -> None:
    state = network([Machine("b", zone="inference"), Machine("b", zone="inference")])
    assert nodes(placed(state, service(), 1, [on("n000")])) == ["n001"]


def test_what_the_zone_does_not_hold_is_packed_in_the_general_part() -> None:
    state = network([Machine("a"), Machine("a", used=2), Machine("b", used=3, zone="inference")])
    assert nodes(placed(state, service(), 3)) == ["n002", "n001", "n001"]


def test_spread_goes_before_the_zone_and_the_zone_before_training() -> None:
    machines = [Machine("a", zone="inference"), Machine("a"), Machine("b")]
    state = network(machines)
    assert nodes(placed(state, service(spread=Level.LEAF), 3)) == ["n000", "n002", "n000"]


def test_shares_of_devices_are_spread_and_then_share() -> None:
    state = network([Machine("a", gpus=1, zone="inference"), Machine("b", gpus=1, zone="inference")])
    assert nodes(placed(state, service(milli=500), 4)) == ["n000", "n001", "n000", "n001"]


def test_no_more_are_placed_than_fit() -> None:
    state = network([Machine("a", gpus=2), Machine("b", gpus=1)])
    assert len(placed(state, service(spread=Level.LEAF), 9)) == 3
    assert placed(state, service(gpus=4), 9) == []


MACHINES = st.builds(
    Machine,
    leaf=st.sampled_from(("a", "b", "c", None)),
    gpus=st.integers(1, 4),
    used=st.integers(0, 1),
    zone=st.sampled_from((None, "inference")),
)


def leaf_of(machines: Sequence[Machine], number: int) -> str:
    return machines[number].leaf or "nameless"


def rules_broken(machines: Sequence[Machine], gpus: int, places: Sequence[WorkerPlace]) -> list[str]:
    """What is wrong with replicas that were placed one after the other, by a count of its own."""
    free = [machine.gpus - machine.used for machine in machines]
    held: dict[str, int] = {}
    found = []
    for place in places:
        number = int(place.node[1:])
        with_room = [at for at in range(len(machines)) if free[at] >= gpus]
        leaf, fewest = leaf_of(machines, number), min(held.get(leaf_of(machines, at), 0) for at in with_room)
        in_zone = any(machines[at].zone for at in with_room if held.get(leaf_of(machines, at), 0) == fewest)
        if held.get(leaf, 0) != fewest:
            found.append(f"{place.node} is in a domain with more replicas than another with room")
        if in_zone and not machines[number].zone:
            found.append(f"{place.node} is not in the zone")
        held[leaf], free[number] = held.get(leaf, 0) + 1, free[number] - gpus
    return found


@given(st.lists(MACHINES, min_size=1, max_size=7), st.integers(1, 2), st.integers(1, 12))
def test_each_replica_goes_to_a_domain_with_the_fewest_of_those_with_room(
    machines: list[Machine], gpus: int, most: int
) -> None:
    state = network(machines)
    places = placed(state, service(gpus=gpus, spread=Level.LEAF), most)
    leaves = {leaf_of(machines, int(place.node[1:])) for place in places}
    reaches("replicas are in several domains, and some share one", 1 < len(leaves) < len(places))
    assert rules_broken(machines, gpus, places) == []
    assert len(places) == min(most, sum((machine.gpus - machine.used) // gpus for machine in machines))
