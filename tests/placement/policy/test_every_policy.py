"""What holds under every placement policy: what it gives fits, a wish is granted or not just as a search through all
possibilities says, and the order in which nodes came makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.capacity.capacity import recount
from fallow.shared.cluster.capacity.topology import differs_from_recount
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, TopologyRequest, Wish
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches, shared_among
from tests.placement.worlds.networks import (
    ALONE,
    MACHINES,
    RULES,
    TOLERATIONS,
    Machine,
    gang,
    holds,
    indices_of,
    network,
    nodes_of,
    room_on,
    start,
    unit_of,
    units_of,
)

NAMES = st.sampled_from(sorted(POLICIES))
LEVELS = st.sampled_from(tuple(Level))
WISHES = st.builds(TopologyRequest, level=LEVELS, wish=st.sampled_from(tuple(Wish)), slice_workers=st.integers(1, 4))
ANY_GANG = st.builds(
    gang,
    st.just("gang"),
    st.integers(1, 4),
    st.integers(1, 7),
    cpu=st.integers(0, 2),
    memory=st.sampled_from((0, 0, 1)),
    topology=st.none() | WISHES,
    spread=st.none() | LEVELS,
    kind=st.sampled_from(tuple(JobKind)),
    gpu_type=st.sampled_from((None, None, "gpu", "tpu")),
    node_labels=RULES,
    tolerations=TOLERATIONS,
    exclusive=ALONE,
)
GANGS = ANY_GANG | st.builds(
    gang,
    st.just("gang"),
    st.integers(1, 3),
    st.integers(2, 7),
    topology=st.none() | WISHES,
    spread=st.none() | LEVELS,
    kind=st.sampled_from(tuple(JobKind)),
)
"""Those of the second kind ask for nothing that few nodes have."""

SHARES = st.builds(
    gang,
    st.just("gang"),
    workers=st.integers(1, 7),
    milli=st.sampled_from((250, 400, 500)),
    topology=st.none() | WISHES,
    node_labels=RULES,
    tolerations=TOLERATIONS,
    exclusive=ALONE,
)


def places_or_none(state: CellState, spec: JobSpec) -> list[str] | None:
    found = place_gang(state, spec)
    return None if isinstance(found, PendingReason) else nodes_of(found)


@given(machines=MACHINES, specs=st.lists(GANGS | SHARES, min_size=1, max_size=5), policy=NAMES)
def test_what_a_policy_gives_can_be_taken_whole(machines: list[Machine], specs: list[JobSpec], policy: str) -> None:
    state = network(machines, policy)
    for number, spec in enumerate(specs):
        found = place_gang(state, spec)
        if not isinstance(found, PendingReason):
            assert [place.rank for place in found] == list(range(spec.workers))
            start(state, replace(spec, id=f"gang-{number}"), found)
    reaches("a policy gives places to several gangs", sum(job.id.startswith("gang") for job in state.jobs.values()) > 1)
    assert check_state(state) == []


ZONES = st.sampled_from((None, "inference"))
EMPTY = st.builds(Machine, leaf=st.none(), gpus=st.integers(1, 4), zone=ZONES)
OPEN = st.builds(
    gang,
    st.just("gang"),
    workers=st.integers(2, 8),
    milli=st.sampled_from((250, 300, 400, 600, 1_000)),
    kind=st.sampled_from(tuple(JobKind)),
    topology=st.none() | WISHES,
)


@shared_among(len(POLICIES))
@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(machines=st.lists(EMPTY, min_size=2, max_size=4), specs=st.lists(OPEN, min_size=1, max_size=4))
def test_the_ranks_of_one_node_follow_each_other(policy: str, machines: list[Machine], specs: list[JobSpec]) -> None:
    state = network(machines, policy)
    is_apart = False
    for number, spec in enumerate(specs):
        found = place_gang(state, spec)
        if not isinstance(found, PendingReason):
            assert [place.rank for place in found] == list(range(spec.workers))
            nodes = [place.node for place in found]
            is_apart |= 1 < len({*nodes}) < len(nodes)
            assert len([node for node, _ in groupby(nodes)]) == len({*nodes})
            start(state, replace(spec, id=f"gang-{number}"), found)
    reaches("a gang is on several nodes, with several workers on one of them", is_apart)


@given(machines=MACHINES, spec=GANGS | SHARES, policy=NAMES)
def test_without_a_wish_a_gang_starts_exactly_if_the_nodes_have_room(
    machines: list[Machine], spec: JobSpec, policy: str
) -> None:
    spec, state = replace(spec, topology=None), network(machines, policy)
    has_room = holds(state, spec, sorted(state.nodes)) >= spec.workers
    reaches("nodes have room for a gang without a wish", has_room and spec.workers > 1)
    assert (places_or_none(state, spec) is not None) == has_room


@given(machines=MACHINES, spec=GANGS, level=LEVELS, policy=NAMES)
def test_a_required_unit_is_found_exactly_if_there_is_one(
    machines: list[Machine], spec: JobSpec, level: Level, policy: str
) -> None:
    spec = replace(spec, topology=TopologyRequest(level=level, wish=Wish.REQUIRED))
    state = network(machines, policy)
    found = places_or_none(state, spec)
    there_is = any(holds(state, spec, nodes) >= spec.workers for nodes in units_of(state, level).values())
    reaches("there is a unit for a gang that requires one", there_is and spec.workers > 1)
    assert (found is not None) == there_is
    assert len({unit_of(state, level, node) for node in found or ()}) <= 1
    assert all(unit_of(state, level, node)[-1] for node in found or ())


@given(machines=MACHINES, spec=SHARES, level=LEVELS)
def test_a_required_unit_binds_shares_of_devices_too(machines: list[Machine], spec: JobSpec, level: Level) -> None:
    spec = replace(spec, topology=TopologyRequest(level=level, wish=Wish.REQUIRED))
    state = network(machines)
    found = places_or_none(state, spec)
    there_is = any(holds(state, spec, nodes) >= spec.workers for nodes in units_of(state, level).values())
    reaches("there is a unit for a gang of shares that requires one", there_is and spec.workers > 1)
    assert (found is not None) == there_is
    assert len({unit_of(state, level, node) for node in found or ()}) <= 1


def some_division(rooms: Sequence[int], slices: Sequence[int]) -> bool:
    """Whether the slices fit into these rooms in any way at all."""
    if not slices:
        return True
    return any(
        room >= slices[0] and some_division([*rooms[:at], room - slices[0], *rooms[at + 1 :]], slices[1:])
        for at, room in enumerate(rooms)
    )


@given(machines=MACHINES, spec=GANGS, level=LEVELS, slice_=st.integers(1, 4))
def test_required_slices_are_found_exactly_if_any_division_fits(
    machines: list[Machine], spec: JobSpec, level: Level, slice_: int
) -> None:
    spec = replace(spec, topology=TopologyRequest(level=level, wish=Wish.REQUIRED, slice_workers=slice_))
    state = network(machines)
    found = places_or_none(state, spec)
    rooms = [holds(state, spec, nodes) for nodes in units_of(state, level).values()]
    slices = [slice_] * (spec.workers // slice_) + [spec.workers % slice_] * (spec.workers % slice_ > 0)
    reaches("several slices of a gang find a unit each", found is not None and len(slices) > 1)
    assert (found is not None) == some_division(rooms, slices)
    in_order = [(found or [])[at : at + slice_] for at in range(0, spec.workers, slice_)]
    assert all(len({unit_of(state, level, node) for node in nodes}) <= 1 for nodes in in_order)


@given(machines=MACHINES, spec=GANGS, policy=NAMES)
def test_a_preferred_wish_never_keeps_a_gang_waiting(machines: list[Machine], spec: JobSpec, policy: str) -> None:
    state = network(machines, policy)
    wish = replace(spec.topology or TopologyRequest(level=Level.LEAF), wish=Wish.PREFERRED)
    has_room = holds(state, spec, sorted(state.nodes)) >= spec.workers
    is_met = any(holds(state, spec, nodes) >= spec.workers for nodes in units_of(state, wish.level).values())
    reaches("a gang starts though no unit holds it that it prefers", has_room and not is_met)
    assert (places_or_none(state, replace(spec, topology=wish)) is not None) == has_room


@given(machines=MACHINES, spec=GANGS, level=LEVELS)
def test_a_preferred_unit_is_used_wherever_one_holds_the_gang(
    machines: list[Machine], spec: JobSpec, level: Level
) -> None:
    state = network(machines)
    found = places_or_none(state, replace(spec, topology=TopologyRequest(level=level)))
    is_met = any(holds(state, spec, nodes) >= spec.workers for nodes in units_of(state, level).values())
    reaches("a unit holds a gang that prefers one", is_met and spec.workers > 1)
    if is_met:
        assert len({unit_of(state, level, node) for node in found or ()}) == 1


@given(machines=MACHINES, spec=GANGS)
def test_e_binpack_uses_one_leaf_group_where_one_holds_the_gang(machines: list[Machine], spec: JobSpec) -> None:
    spec, state = replace(spec, topology=None), network(machines)
    found = places_or_none(state, spec)
    one_holds_it = any(holds(state, spec, nodes) >= spec.workers for nodes in units_of(state, Level.LEAF).values())
    reaches("a leaf group holds a gang of several workers", one_holds_it and spec.workers > 1)
    if one_holds_it:
        assert len({unit_of(state, Level.LEAF, node) for node in found or ()}) == 1


@given(machines=MACHINES, spec=GANGS)
def test_e_binpack_uses_one_node_where_one_holds_the_gang(machines: list[Machine], spec: JobSpec) -> None:
    spec, state = replace(spec, topology=None), network(machines)
    one_holds_it = any(room_on(state, spec, node) >= spec.workers for node in state.nodes)
    reaches("a node holds a gang of several workers", one_holds_it and spec.workers > 1)
    if one_holds_it:
        assert len(set(places_or_none(state, spec) or ())) == 1


@given(machines=MACHINES, spec=GANGS | SHARES, policy=NAMES, data=st.data())
def test_the_order_in_which_nodes_came_makes_no_difference(
    machines: list[Machine], spec: JobSpec, policy: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(machines))))
    found = place_gang(network(machines, policy), spec)
    reaches("a gang has places whatever order nodes came in", order != sorted(order) and isinstance(found, tuple))
    assert found == place_gang(network(machines, policy, order), spec)


@given(machines=MACHINES, specs=st.lists(GANGS | SHARES, min_size=2, max_size=6), data=st.data())
def test_the_indices_equal_a_recount_after_starts_and_rollbacks(
    machines: list[Machine], specs: list[JobSpec], data: st.DataObject
) -> None:
    state = network(machines, data.draw(NAMES))
    undone, kept = False, False
    for number, spec in enumerate(specs):
        found, mark = place_gang(state, spec), state.checkpoint()
        if started := not isinstance(found, PendingReason):
            start(state, replace(spec, id=f"gang-{number}"), found)
            place_gang(state, spec)
        is_undone = data.draw(st.booleans())
        undone, kept = undone or (is_undone and started), kept or (started and not is_undone)
        state.rollback(mark) if is_undone else state.commit(mark)
    reaches("one start is undone, and another one stays", undone and kept)
    assert state.pools == recount(state.nodes)
    views = [view for pool in state.pools.values() for view in indices_of(pool)]
    assert [differs_from_recount(view) for view in views] == [None] * len(views)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_that_cannot_be_told_apart_gets_the_same_places_from_every_order(policy: str) -> None:
    machines = [Machine(leaf) for leaf in "aabb"]
    spec = gang("gang", 4, 2)
    found = {
        places and tuple(places)
        for order in permutations(range(4))
        for places in [places_or_none(network(machines, policy, order), spec)]
    }
    assert len(found) == 1
