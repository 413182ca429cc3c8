"""Which devices of a node a worker gets: of one island where it can be, and there at few network cards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fallow.services.placement.fit.device_selection import devices_for
from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.node import bits
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import build_valid
from fallow.shared.events.fields.values import JobSpec, NodeSpec, NodeStatus
from fallow.shared.events.operations import CellPolicy
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import POOL, gang, start

PAIRS = NodeSpec(id="n", pool=POOL, gpus=8, islands=(4, 4), nics=(2, 2, 2, 2))
ALL = 0b11111111


def one_node(policy: str, spec: NodeSpec) -> CellState:
    state = CellState("cell-a")
    apply(state, e.PolicySet(policy=CellPolicy(placement=policy)), 0)
    apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)
    return state


def run(state: CellState, spec: JobSpec) -> list[tuple[int, ...]]:
    found = place_gang(state, spec)
    assert not isinstance(found, PendingReason)
    start(state, spec, found)
    return [place.devices for place in found]


@pytest.mark.parametrize(
    ("free", "gpus", "devices"),
    [
        (ALL, 1, (0,)),
        (ALL, 2, (0, 1)),
        (0b11111110, 1, (1,)),
        (0b11111110, 2, (2, 3)),
        (0b11111110, 3, (1, 2, 3)),
        (0b00111010, 2, (1, 3)),
        (0b11110010, 4, (4, 5, 6, 7)),
        (0b11101101, 3, (0, 2, 3)),
        (0b11011110, 5, (1, 2, 3, 6, 7)),
    ],
)
def test_a_worker_gets_one_island_and_as_few_network_cards_as_possible(
    free: int, gpus: int, devices: tuple[int, ...]
) -> None:
    assert devices_for(free, PAIRS, gpus, 1) == (devices,)


def test_without_islands_the_network_cards_decide() -> None:
    spec = NodeSpec(id="n", pool=POOL, gpus=8, nics=(4, 4))
    assert devices_for(0b11111110, spec, 4, 1) == ((4, 5, 6, 7),)
    assert devices_for(0b11111110, spec, 2, 2) == ((1, 2), (4, 5))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_workers_of_whole_groups_get_whole_groups_under_every_policy(policy: str) -> None:
    state = one_node(policy, PAIRS)
    assert run(state, gang("one", 1)) == [(0,)]
    assert run(state, gang("two", 2)) == [(2, 3)]
    assert run(state, gang("four", 4)) == [(4, 5, 6, 7)]
    assert run(state, gang("half", milli=500)) == [(1,)]


def test_network_cards_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValidationError, match="must add up to gpus, which is 8") as raised:
        build_valid(NodeSpec, id="n", pool=POOL, gpus=8, nics=(2, 2, 2))
    assert [problem["loc"] for problem in raised.value.errors()] == [("nics",)]


SIZES = st.sampled_from(((), (8,), (4, 4), (2, 2, 2, 2), (2, 6), (1, 3, 4)))


@given(free=st.integers(1, ALL), islands=SIZES, nics=SIZES, gpus=st.integers(1, 8))
def test_no_choice_touches_fewer_islands_or_of_one_island_fewer_cards(
    free: int, islands: tuple[int, ...], nics: tuple[int, ...], gpus: int
) -> None:
    spec = NodeSpec(id="n", pool=POOL, gpus=8, islands=islands, nics=nics)
    gpus = min(gpus, free.bit_count())
    (devices,) = devices_for(free, spec, gpus, 1)
    assert len(set(devices)) == gpus
    assert set(devices) <= set(bits(free))
    touched = groups_of(devices, islands)
    reaches("the devices of a worker are in several islands", len(touched) > 1)
    assert len(touched) == fewest_groups(bits(free), islands, gpus)
    for island in touched:
        here = [device for device in bits(free) if groups_of((device,), islands) == {island}]
        mine = tuple(device for device in devices if device in here)
        assert len(groups_of(mine, nics)) == fewest_groups(here, nics, len(mine))


def groups_of(devices: tuple[int, ...], sizes: tuple[int, ...]) -> set[int]:
    """The groups in which these devices are; one where none are told."""
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    return {sum(device >= end for end in ends) for device in devices}


def fewest_groups(free: list[int], sizes: tuple[int, ...], gpus: int) -> int:
    """How many groups so many of these devices need at least."""
    groups = sorted(groups_of(tuple(free), sizes))
    rooms = sorted((sum(groups_of((device,), sizes) == {group} for device in free) for group in groups), reverse=True)
    return next(many for many in range(1, len(rooms) + 1) if sum(rooms[:many]) >= gpus)
