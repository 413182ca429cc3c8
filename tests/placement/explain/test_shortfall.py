"""Who waits can see what there is and what is missing, unit by unit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.explain.shortfall import shortfall
from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import Level, TopologyRequest, Wish
from fallow.shared.events.operations import Quota
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import MACHINES, Machine, gang, holds, network, units_of

REQUIRED_LEAF = TopologyRequest(level=Level.LEAF, wish=Wish.REQUIRED)


def test_a_gang_of_whole_nodes_is_told_how_many_each_leaf_has() -> None:
    state = network([Machine("leaf-7", used=number == 0) for number in range(4)] + [Machine("leaf-8")])
    (told,) = shortfall(state, gang("g", 4, 4, topology=REQUIRED_LEAF))
    assert told.texts == [
        "train has 19 free GPUs, the job needs 16; room for 4 of 4 workers",
        "leaf-7 has 3 of 4 whole nodes",
        "leaf-8 holds 1 of 4 whole nodes at most",
    ]


def test_a_gang_of_parts_of_nodes_is_told_for_how_many_workers_there_is_room() -> None:
    state = network([Machine("a", used=2), Machine("a")])
    (told,) = shortfall(state, gang("g", 2, 4, topology=REQUIRED_LEAF))
    assert told.units[0].text == "a has room for 3 of 4 workers"


def test_a_share_of_a_device_is_counted_as_a_share() -> None:
    state = network([Machine("a", gpus=2, used=1)])
    (told,) = shortfall(state, gang("g", workers=5, milli=250))
    assert told.texts == [
        "train has 1 free GPUs, the job needs 1.25; room for 4 of 5 workers",
        "a has room for 4 of 5 workers",
    ]


def test_a_tenant_at_its_limit_is_told_what_is_left() -> None:
    state = network([Machine("a", used=1)])
    apply(state, e.QuotaSet(quota=Quota(tenant="ada", gpu_type="gpu", limit_milli=2_000)), 0)
    (told,) = shortfall(state, gang("g", 3))
    assert told.texts[1] == "the tenant may use 1 GPUs more, the job needs 3"


def test_only_the_units_with_the_most_room_are_told() -> None:
    state = network([Machine(f"leaf-{number}", used=number % 4) for number in range(20)])
    (told,) = shortfall(state, gang("g", 4, 9, topology=REQUIRED_LEAF), units_max=2)
    assert [unit.name for unit in told.units] == ["leaf-0", "leaf-12"]


@given(machines=MACHINES, gpus=st.integers(1, 4), workers=st.integers(1, 9), cpu=st.integers(0, 2))
def test_the_numbers_are_those_by_which_the_job_waits(
    machines: list[Machine], gpus: int, workers: int, cpu: int
) -> None:
    spec = gang("g", gpus, workers, cpu=cpu, topology=REQUIRED_LEAF)
    state = network(machines)
    (told,) = shortfall(state, spec, units_max=100)
    rooms = {path: holds(state, spec, nodes) for path, nodes in units_of(state, Level.LEAF).items()}
    assert sorted(unit.workers for unit in told.units if unit.workers) == sorted(
        room for room in rooms.values() if room
    )
    assert {unit.name for unit in told.units} >= {path[-1] for path, room in rooms.items() if room}
    waits = isinstance(place_gang(state, spec), PendingReason)
    reaches("a job waits for a unit though some have room for a part of it", waits and any(rooms.values()))
    assert waits == all(unit.workers < unit.wanted for unit in told.units)
