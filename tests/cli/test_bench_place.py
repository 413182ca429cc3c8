"""What is timed of placement is what it says: the cells, the jobs and the baseline."""

from __future__ import annotations

from services.cli.bench.networked_cell import Network, enqueue, gang, lines_of
from services.cli.bench.place import (
    BLOCK_OF_RACKS,
    RACKS_OF_TWO,
    first_fit_by_a_loop,
    round_of_jobs,
    walk_and_start,
)
from shared.cluster.invariants import check_state
from shared.cluster.topology import topology_of
from shared.events.values import Level


def units(network: Network, level: Level) -> list[int]:
    """The sizes of the units of a level."""
    state = network.cell()
    found = topology_of(state, state.pools["bench"]).levels[level]
    return [len(found.slots(unit)) for unit in range(len(found.paths))]


def test_racks_have_sixteen_nodes_and_blocks_sixteen_racks() -> None:
    assert set(units(BLOCK_OF_RACKS, Level.LEAF)) == {16, 4}
    assert set(units(BLOCK_OF_RACKS, Level.SPINE)) == {256, 196}


def test_four_zones_of_eight_blocks_of_eight_racks_of_two() -> None:
    levels = (Level.LEAF, Level.SPINE, Level.SUPERSPINE)
    assert [units(RACKS_OF_TWO, level) for level in levels] == [[2] * 256, [16] * 32, [128] * 4]


def test_the_baseline_and_the_policy_fill_the_same_cell() -> None:
    states = [Network(3).cell(), Network(3).cell()]
    for state in states:
        enqueue(state, [gang(f"job-{number}", 1) for number in range(24)])
    assert first_fit_by_a_loop(states[0], lines_of(states[0])) == walk_and_start(states[1], lines_of(states[1])) == 24
    assert [check_state(state) for state in states] == [[], []]


def test_a_round_of_jobs_has_as_many_workers_as_it_says() -> None:
    state = Network(100).cell()
    enqueue(state, round_of_jobs(0))
    assert walk_and_start(state, lines_of(state)) == 184
    assert check_state(state) == []
