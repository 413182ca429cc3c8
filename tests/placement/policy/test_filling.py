"""Workers who are all alike are placed in one pass, and come to where each would come after the one before."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.fit.filling import Order, count_room, fill, fullest, lowest
from fallow.services.placement.fit.fractional_gpu import FractionalGang
from fallow.services.placement.fit.free_capacity import FreeCapacity
from fallow.services.placement.search.gang import place_gang
from fallow.services.placement.search.replicas import Domains, place_replicas
from fallow.shared.cluster.capacity.topology import numbers_of, topology_for
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobKind, JobSpec, Level, TopologyRequest, Wish, WorkerPlace
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.oracles.one_by_one import Seat, best_fit, first_fit, node_by_node, spread
from tests.placement.worlds.networks import (
    ALONE,
    MACHINES,
    POOL,
    RULES,
    TOLERATIONS,
    Machine,
    gang,
    network,
    start,
)

WAYS: dict[str, Callable[[CellState, JobSpec], list[Seat]]] = {
    "best-fit": best_fit,
    "first-fit": first_fit,
    "spread": spread,
}
MILLI = st.sampled_from((1, 100, 250, 300, 333, 500, 501, 999, 1_000, 2_000))
ANY_GANG = st.builds(
    gang,
    st.just("gang"),
    workers=st.integers(1, 9) | st.integers(10, 60),
    milli=MILLI,
    cpu=st.sampled_from((0, 0, 1)),
    memory=st.sampled_from((0, 0, 1)),
    spread=st.none() | st.sampled_from(tuple(Level)),
    gpu_type=st.sampled_from((None, None, "gpu")),
    node_labels=RULES,
    tolerations=TOLERATIONS,
    exclusive=ALONE,
)
GANGS = ANY_GANG | st.builds(
    gang, st.just("gang"), workers=st.integers(1, 9), milli=MILLI, spread=st.none() | st.sampled_from(tuple(Level))
)
"""Those of the second kind ask for nothing that few nodes have."""

OTHERS = st.lists(st.builds(gang, st.just("other"), milli=MILLI, workers=st.integers(1, 3)), max_size=6)
FAILURES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=3)


def in_use(machines: list[Machine], policy: str, others: list[JobSpec], failures: list[tuple[int, int]]) -> CellState:
    """A cell in which others hold shares and whole devices, and some devices have failed."""
    state = network([replace_islands(machine) for machine in machines], policy)
    for number, spec in enumerate(others):
        found = place_gang(state, replace(spec, tolerations=("hot", "slow")))
        if not isinstance(found, PendingReason):
            start(state, replace(spec, id=f"other-{number}", tolerations=("hot", "slow")), found)
    for at, device in failures:
        if at < len(machines):
            apply(state, e.DeviceChanged(node=f"n{at:03}", device=device, healthy=False), 0)
    return state


def replace_islands(machine: Machine) -> Machine:
    """Which devices of a node are taken is another matter: the lowest, where there are no islands."""
    return Machine(**{**vars(machine), "has_islands": False})


@pytest.mark.parametrize("policy", sorted(WAYS))
@given(machines=MACHINES, others=OTHERS, failures=FAILURES, spec=GANGS)
def test_a_gang_is_where_its_workers_would_be_one_by_one(
    policy: str, machines: list[Machine], others: list[JobSpec], failures: list[tuple[int, int]], spec: JobSpec
) -> None:
    state = in_use(machines, policy, others, failures)
    seats = node_by_node(WAYS[policy](state, spec))
    found = place_gang(state, spec)
    has_others = any(name.startswith("other") for name in state.jobs)
    reaches(f"a gang has places beside others under {policy}", has_others and isinstance(found, tuple))
    if len(seats) < spec.workers:
        assert isinstance(found, PendingReason)
    else:
        assert [(place.node, place.devices) for place in found] == seats  # type: ignore[union-attr]


@given(
    machines=MACHINES,
    others=OTHERS,
    failures=FAILURES,
    spec=GANGS,
    wants=st.integers(0, 1_500),
    most=st.integers(1, 60),
)
def test_as_many_are_counted_as_find_places(
    machines: list[Machine],
    others: list[JobSpec],
    failures: list[tuple[int, int]],
    spec: JobSpec,
    wants: int,
    most: int,
) -> None:
    state = in_use(machines, "best-fit", others, failures)
    pool = state.pools[POOL]
    resources = replace(spec.resources, gpu_milli=wants if wants < 1_000 else 1_000 * (wants // 500 - 1))
    spec = replace(spec, resources=resources)
    found = sum(many for _, _, many in fill(FreeCapacity.of(state, pool, spec), spec, most, fullest))
    reaches("a pool has room for some workers of a job, and not for all", 0 < found < most)
    assert count_room(FreeCapacity.of(state, pool, spec), spec, most) == found
    if wants:
        assert len(place_replicas(state, pool, replace(spec, kind=JobKind.INFERENCE, gang=False), (), most)) == found


@given(machines=MACHINES, others=OTHERS, failures=FAILURES, spec=GANGS)
def test_what_is_counted_of_each_unit_is_what_it_holds(
    machines: list[Machine], others: list[JobSpec], failures: list[tuple[int, int]], spec: JobSpec
) -> None:
    state = in_use(machines, "best-fit", others, failures)
    spec = replace(spec, resources=replace(spec.resources, gpu_milli=min(spec.resources.gpu_milli, 999)))
    pool = state.pools[POOL]
    topology = topology_for(state, pool, spec)
    shares = FractionalGang(state, pool, topology, spec)
    has_choice = False
    for level, units in topology.levels.items():
        held = {}
        for unit in range(len(units.paths)):
            room = FreeCapacity.of(state, pool, spec, numbers_of(pool, topology, units.slots(unit)))
            held[unit] = sum(many for _, _, many in fill(room, spec, spec.workers, fullest))
            assert shares.room_in(level, unit) == held[unit]
        fit = [unit for unit, many in held.items() if many >= spec.workers and units.named >> unit & 1]
        has_choice |= len(fit) > 1
        whole = {unit: sum(topology.free[slot] for slot in units.slots(unit)) for unit in fit}
        assert shares.smallest(level, spec.workers) == min(fit, key=lambda unit: (whole[unit], unit), default=None)
    reaches("several units of a level hold a gang of shares", has_choice)


ZONE = {JobKind.INFERENCE: "inference"}


def steps(work: Callable[[], object]) -> int:
    """How many functions of this program it calls."""
    called = 0

    def see(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal called
        called += what == "call"

    before = sys.getprofile()
    gc.disable()  # what others run after a collection is no step of this
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return called


@pytest.mark.parametrize("policy", ["best-fit", "first-fit", "spread", "e-binpack", "e-spread", "frag-aware"])
@pytest.mark.parametrize("wish", [None, TopologyRequest(level=Level.DOMAIN, wish=Wish.REQUIRED)])
@pytest.mark.parametrize("kind", list(JobKind))
def test_many_small_workers_cost_by_the_devices_that_they_fill(
    policy: str, wish: TopologyRequest | None, kind: JobKind
) -> None:
    state = network([Machine("a", domain="d", gpus=8, zone=ZONE.get(kind)) for _ in range(8)], policy)
    spec = gang("many", workers=10_000, milli=1, topology=wish, kind=kind)
    place_gang(state, spec)  # makes the indices
    found: list[object] = []
    most = 30_000 if "spread" in policy else 500  # to spread them their ranks are put in order
    assert steps(lambda: found.append(place_gang(state, spec))) < most
    assert isinstance(found[0], tuple)


@pytest.mark.parametrize("cpu", [0, 1])
@pytest.mark.parametrize("level", [Level.NODE, Level.DOMAIN])
def test_units_that_can_not_hold_a_gang_of_shares_are_not_looked_into(level: Level, cpu: int) -> None:
    state = network([Machine("a", domain=f"d{number // 4}", gpus=8, cpu=90) for number in range(200)])
    spec = gang("huge", workers=1_599, milli=501, cpu=cpu, topology=TopologyRequest(level=level, wish=Wish.REQUIRED))
    assert place_gang(state, spec) is PendingReason.NO_SUCH_NODES
    assert steps(lambda: place_gang(state, spec)) < 100 + cpu * 500


def test_what_the_whole_pool_can_not_hold_is_known_without_a_look_at_its_nodes() -> None:
    state = network([Machine("a", gpus=8) for _ in range(200)])
    spec = gang("huge", workers=1_601, milli=501)
    assert place_gang(state, spec) is PendingReason.NO_SUCH_NODES
    assert steps(lambda: place_gang(state, spec)) < 100


@pytest.mark.parametrize("milli", [300, 1_000])
@pytest.mark.parametrize("policy", ["best-fit", "first-fit", "spread"])
def test_nodes_whose_cpus_are_used_up_are_not_looked_at_again(policy: str, milli: int) -> None:
    state = network([Machine("a", gpus=8, cpu=1) for _ in range(200)], policy)
    spec = gang("busy", workers=200, milli=milli, cpu=1)
    assert isinstance(place_gang(state, spec), tuple)
    assert steps(lambda: place_gang(state, spec)) < 200 * 40


def test_replicas_that_are_there_already_cost_nothing_each() -> None:
    state = network([Machine("a", gpus=8) for _ in range(8)])
    pool, web = state.pools[POOL], gang("web", workers=9_999, milli=1, kind=JobKind.INFERENCE, spread=Level.LEAF)
    held = [WorkerPlace(rank=at, node="n000", devices=(0,), gpu_milli=1) for at in range(5_000)]
    domains = Domains.of(state, pool, web, held, Level.LEAF)
    assert len(list(domains.fewest_first(-1))) == 2
    assert len(place_replicas(state, pool, web, held, 1_000)) == 1_000


@pytest.mark.parametrize("order", [fullest, lowest])
@pytest.mark.parametrize("gpus", [0, 1, 4, 9])
def test_an_order_has_each_node_with_enough_free_devices_in_just_one_mask(order: Order, gpus: int) -> None:
    by_free = {0: 0b1, 8: 0b10010, 4: 0b1100}
    masks = list(order(by_free, gpus))
    enough = sum(nodes for free, nodes in by_free.items() if free >= gpus)
    assert (sum(masks), sum(mask.bit_count() for mask in masks)) == (enough, enough.bit_count())
