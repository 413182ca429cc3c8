"""What E-Binpack promises at both levels, held against a look at every node and every group; and what comes of it."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import JobSpec, Level
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import Machine, gang, network, nodes_of, start, unit_of, units_of

GPUS = 4
CLUSTERS = st.lists(
    st.builds(Machine, leaf=st.sampled_from("abcd"), used=st.sampled_from((0, 0, 1, 2, GPUS))), min_size=1, max_size=14
)
ROOMY = st.lists(
    st.builds(Machine, leaf=st.sampled_from("aaabbc"), used=st.sampled_from((0, 0, 0, 1))), min_size=7, max_size=14
)
"""Groups of several sizes, of which more than one holds a job of some whole nodes."""


def leaf_of(state: CellState, node: str) -> tuple[str, ...]:
    return unit_of(state, Level.LEAF, node)


def whole_nodes(state: CellState) -> Counter[tuple[str, ...]]:
    """How many wholly free nodes each leaf group has."""
    return Counter(leaf_of(state, node) for node in state.nodes if state.nodes[node].gpus_free == GPUS)


def found_by(state: CellState, spec: JobSpec) -> list[str]:
    found = place_gang(state, spec)
    return [] if isinstance(found, PendingReason) else nodes_of(found)


@given(machines=CLUSTERS | ROOMY, workers=st.integers(2, 6))
def test_a_job_of_whole_nodes_goes_to_the_smallest_group_that_holds_it_or_to_the_fewest(
    machines: list[Machine], workers: int
) -> None:
    state = network(machines)
    room = whole_nodes(state)
    used = Counter(leaf_of(state, node) for node in found_by(state, gang("job", GPUS, workers)))
    holding = [many for many in room.values() if many >= workers]
    reaches("a job of whole nodes goes to one of groups of several sizes that hold it", len({*holding}) > 1)
    roomiest = sorted(room.values(), reverse=True)
    fewest = next((many for many in range(1, len(roomiest) + 1) if sum(roomiest[:many]) >= workers), 0)
    reaches("a job of whole nodes needs several groups", fewest > 1)
    assert len(used) == fewest
    assert not holding or [room[leaf] for leaf in used] == [min(holding)]


@given(machines=CLUSTERS, gpus=st.integers(1, GPUS))
def test_a_small_job_goes_to_the_fullest_node_and_breaks_no_empty_group_while_another_has_room(
    machines: list[Machine], gpus: int
) -> None:
    state = network(machines)
    free = {node: state.nodes[node].gpus_free for node in state.nodes if state.nodes[node].gpus_free >= gpus}
    groups = units_of(state, Level.LEAF)
    in_use = {leaf for leaf, nodes in groups.items() if any(state.nodes[node].jobs for node in nodes)}
    near = {leaf_of(state, node) for node in free}
    reaches("a small job has room in groups in use and in empty ones", near & in_use and near - in_use)
    for node in found_by(state, gang("job", gpus)):
        assert free[node] == min(free.values())
        assert leaf_of(state, node) in in_use or not any(leaf_of(state, other) in in_use for other in free)


@given(machines=CLUSTERS, jobs=st.lists(st.integers(1, 2), min_size=1, max_size=8))
def test_jobs_in_a_row_break_a_whole_node_only_if_no_broken_one_holds_them(
    machines: list[Machine], jobs: list[int]
) -> None:
    state = network(machines)
    ways = set[bool]()
    for number, gpus in enumerate(jobs):
        broken = [node for node in state.nodes.values() if gpus <= node.gpus_free < GPUS]
        spec = gang(f"job-{number}", gpus)
        found = place_gang(state, spec)
        if isinstance(found, PendingReason):
            assert not broken
            continue
        assert (state.nodes[found[0].node].gpus_free < GPUS) == bool(broken)
        ways.add(bool(broken))
        start(state, spec, found)
    reaches("one job of a row breaks a whole node, and another one fills a broken one", len(ways) > 1)


def mean_fragmentation(policy: str, seed: int) -> float:
    """Kant's GFR, mean over 300 steps, of jobs that come and go on 8 leaf groups of 4 nodes."""
    random, ends, waiting, seen = Random(seed), list[tuple[int, str]](), list[JobSpec](), list[float]()
    state = network([Machine(f"leaf-{number // 4}", gpus=8) for number in range(32)], policy)
    for step in range(300):
        while ends and ends[0][0] <= step:
            apply(state, e.JobFinished(job=heappop(ends)[1], attempt=1), 0)
        gpus, workers = random.choice(((1, 1), (1, 1), (2, 1), (4, 1), (1, 4), (2, 4), (2, 2), (8, 1), (8, 2), (8, 4)))
        waiting.append(gang(f"job-{step}", gpus, workers))
        for spec in list(waiting):
            found = place_gang(state, spec)
            if not isinstance(found, PendingReason):
                waiting.remove(spec)
                start(state, spec, found)
                heappush(ends, (step + 1 + random.randrange(40), spec.id))
        (pool,) = state.pools.values()
        seen.append(pool.nodes_fragmented / pool.nodes_usable)
    return sum(seen[50:]) / len(seen[50:])


def test_fewer_nodes_are_in_fragments_than_under_plain_binpack_and_far_fewer_than_under_spread() -> None:
    mean = {policy: sum(mean_fragmentation(policy, seed) for seed in range(3)) for policy in POLICIES}
    assert mean["e-binpack"] < 0.9 * mean["binpack"]
    assert mean["binpack"] < mean["first-fit"] < mean["spread"]


POLICIES = ("e-binpack", "binpack", "first-fit", "spread")
