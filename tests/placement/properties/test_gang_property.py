"""A gang starts whole or not at all, and it starts exactly if a search through all possibilities finds room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import POLICIES, place_gang
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import GPU, JobSpec, Resources
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import World, admitted, cell_with, joined, report, set_policy, spec_of

Wants = tuple[int, int, int]


def world_of(nodes: list[tuple[int, int, int]], fillers: list[int], failed: list[int]) -> World:
    """Nodes of these GPUs, CPUs and memory; jobs that take a part of them; broken devices."""
    world = cell_with(
        *(
            joined(f"n{at}", gpus, cpu_milli=cpu, memory_mib=mem, labels={"side": "ab"[at % 2]})
            for at, (gpus, cpu, mem) in enumerate(nodes)
        )
    )
    world.tell(*(report(f"n{device % len(nodes)}", failed=(device % 3,)) for device in failed))
    for number, gpus in enumerate(fillers):
        if fits(world.state, spec_of("x", gpus)):
            world.run(spec_of(f"filler-{number}", gpus))
    return world


def fits(state: CellState, spec: JobSpec) -> bool:
    return not isinstance(place_gang(state, spec), PendingReason)


def room_left(state: CellState, side: str = "ab", *, exclusive: bool = False) -> list[Wants]:
    """What each node of these sides still has, or each that is empty."""
    return [
        (node.gpus_free, node.spec.cpu_milli - node.cpu_used, node.spec.memory_mib - node.memory_used)
        for node in state.nodes.values()
        if node.spec.labels["side"] in side and not (exclusive and node.jobs)
    ]


def search(room: list[Wants], wants: Wants, workers: int) -> bool:
    """Every way to place one worker after the other."""
    if not workers:
        return True
    for at, here in enumerate(room):
        left = (here[0] - wants[0], here[1] - wants[1], here[2] - wants[2])
        if min(left) >= 0 and search([*room[:at], left, *room[at + 1 :]], wants, workers - 1):
            return True
    return False


SIDES = (("ab", ()), ("a", ("side=a",)), ("b", ("side!=a",)), ("ab", ("side=a|b", "!zone")), ("", ("side=c",)))
NODES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)


@given(
    NODES,
    st.lists(st.integers(1, 4), max_size=4),
    st.lists(st.integers(0, 30), max_size=3),
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)),
    st.integers(1, 5),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from(SIDES),
    st.booleans(),
)
def test_a_gang_finds_places_exactly_if_there_are_any(  # noqa: PLR0917 - each is drawn for itself
    nodes: list[tuple[int, int, int]],
    fillers: list[int],
    failed: list[int],
    wants: Wants,
    workers: int,
    policy: str,
    side: tuple[str, tuple[str, ...]],
    exclusive: bool,
) -> None:
    world = world_of(nodes, fillers, failed)
    world.tell(set_policy(placement=policy))
    gpus, cpu, memory = wants
    resources = Resources(gpu_milli=gpus * GPU, cpu_milli=cpu, memory_mib=memory)
    spec = spec_of("gang", workers=workers, resources=resources, node_labels=side[1], exclusive=exclusive)
    room = room_left(world.state, side[0], exclusive=exclusive)
    there_are = search(room, wants, workers)
    reaches("there are places for a gang of several workers", there_are and workers > 1)
    assert fits(world.state, spec) == there_are


@given(
    NODES, st.lists(st.tuples(st.sampled_from((100, 250, 400, 500, 900, 1000, 2000)), st.integers(1, 5)), max_size=12)
)
def test_whatever_starts_is_whole_and_holds_what_it_asked_for(
    nodes: list[tuple[int, int, int]], gangs: list[tuple[int, int]]
) -> None:
    world = cell_with(*(joined(f"n{at}", gpus) for at, (gpus, _, _) in enumerate(nodes)))
    specs = [
        spec_of(f"gang-{number}", workers=workers, resources=Resources(gpu_milli=milli))
        for number, (milli, workers) in enumerate(gangs)
    ]
    world.tell(*(admitted(spec) for spec in specs))
    held = {spec.id: [place.gpu_milli for place in world.job(spec.id).workers] for spec in specs}
    assert all(held[spec.id] in ([], [spec.resources.gpu_milli] * spec.workers) for spec in specs)
    waiting = [spec for spec in specs if not held[spec.id]]
    reaches("some gangs start, and some wait", 0 < len(waiting) < len(specs))
    assert all(world.job(spec.id).deferred is not None for spec in waiting)
    assert not [spec for spec in waiting if fits(world.state, spec)]
