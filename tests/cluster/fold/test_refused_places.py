"""A gang that is refused at any of its places leaves its nodes, its tenant's use and all indices as they were."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from fallow.shared.cluster.capacity.capacity import recount
from fallow.shared.cluster.capacity.topology import Topology, differs_from_recount, topology_of
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.allocation import take
from fallow.shared.cluster.fold.fold import DamagedLog
from fallow.shared.cluster.fold.rows import rows_of
from fallow.shared.cluster.model.node import Node
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import GPU, Level, Resources, WorkerPlace
from tests.cluster.worlds.examples import cell, enqueued, node, place, quota, started, then

HALF = GPU // 2
LEVELS = (Level.NODE, Level.LEAF)

Places = tuple[WorkerPlace, ...]


def busy_cell() -> CellState:
    """Three nodes on which others hold whole devices, shares, CPUs and memory; `gang` waits."""
    other = node("n3", gpus=4)
    state = cell(node("n1"), node("n2"), replace(other, spec=replace(other.spec, gpu_type="tpu")), enqueued("gang"))
    uses = Resources(gpu_milli=GPU, cpu_milli=1_000, memory_mib=500)
    then(state, enqueued("whole", resources=uses, workers=2))
    then(state, started("whole", place(0, "n1", 0, cpu=1_000, memory=500), place(1, "n2", 0, cpu=1_000, memory=500)))
    then(state, enqueued("shares", resources=Resources(gpu_milli=HALF), workers=2))
    then(state, started("shares", place(0, "n1", 1, milli=HALF), place(1, "n2", 1, milli=HALF)))
    topology(state)
    return state


def topology(state: CellState) -> Topology:
    """The index over the network, up to date."""
    found = topology_of(state, state.pools["train"])
    for level in LEVELS:
        for gpus in (1, 2, 3):
            found.ranking(level, gpus)
    return found


def numbers_of(each: Node) -> tuple[Any, ...]:
    """All that a node counts, its tables in their order."""
    return each.held, each.cpu_used, each.memory_used, each.alone, tuple(each.jobs.items()), tuple(each.shares.items())


def seen(state: CellState) -> tuple[Any, ...]:
    """All of a state by which any rule decides: its rows byte for byte, and what its nodes and indices count."""
    found = topology(state)
    rooms = [found.ranking(level, gpus).room for level in LEVELS for gpus in (1, 2, 3)]
    counts = [numbers_of(each) for each in state.nodes.values()]
    usage = list(state.usage.items())
    index = (found.free, found.by_free, found.holding, found.in_use, rooms)
    return deepcopy((list(rows_of(state)), counts, usage, state.pools, index))


def is_counted_right(state: CellState) -> None:
    """No index differs from a recount."""
    assert check_state(state) == []
    assert state.pools == recount(state.nodes)
    assert differs_from_recount(topology(state)) is None


TWO_ON_THE_FIRST = (place(0, "n1", 2, cpu=10, memory=20), place(1, "n1", 3, cpu=10, memory=20))

REFUSED: dict[str, tuple[Places, str]] = {
    "the first place on the second node": ((*TWO_ON_THE_FIRST, place(2, "n2", 0)), "n2: device 0 is not free"),
    "the second place on the second node": (
        (*TWO_ON_THE_FIRST, place(2, "n2", 2), place(3, "n2", 2)),
        "n2: device 2 is not free",
    ),
    "a share on the second node": (
        (place(0, "n1", 1, milli=HALF), place(1, "n2", 1, milli=HALF), place(2, "n2", 1, milli=HALF)),
        "n2: device 1 has 0 milli-GPUs free",
    ),
    "CPUs on the second node": ((*TWO_ON_THE_FIRST, place(2, "n2", 2, cpu=64_000)), "n2: needs 64000 milli-CPUs"),
    "the first node, to which it comes back": (
        (place(0, "n1", 2), place(1, "n2", 2), place(2, "n1", 2)),
        "n1: device 2 is not free",
    ),
    "a node of another type": ((*TWO_ON_THE_FIRST, place(2, "n3", 7)), "n3: device 7 is not free"),
    "a node that is not there": ((*TWO_ON_THE_FIRST, place(2, "n9", 0)), "n9 does not exist"),
    "the very first place": ((place(0, "n1", 0),), "n1: device 0 is not free"),
}


@pytest.fixture(params=["no quota", "a quota"])
def state(request: pytest.FixtureRequest) -> CellState:
    found = busy_cell()
    if request.param == "a quota":
        then(found, quota("ada", limit=20))
        topology(found)
    return found


@pytest.mark.parametrize("has_asked", [False, True], ids=["no index looks between", "an index looks between"])
@pytest.mark.parametrize("where", REFUSED)
def test_a_gang_that_is_refused_a_place_leaves_all_as_it_was(where: str, state: CellState, *, has_asked: bool) -> None:
    places, why = REFUSED[where]
    before = seen(state)
    mark = state.checkpoint()
    told = take(state, "ada", "gang", places)
    if has_asked:
        topology(state)
    state.rollback(mark)
    assert why in (told or "")
    assert seen(state) == before
    is_counted_right(state)


def test_workers_that_are_refused_to_a_job_leave_those_that_it_has_there(state: CellState) -> None:
    before = seen(state)
    mark = state.checkpoint()
    told = take(state, "ada", "whole", (place(2, "n1", 2), place(3, "n1", 3), place(4, "n2", 2), place(5, "n2", 0)))
    topology(state)
    state.rollback(mark)
    assert told == "node n2: device 0 is not free"
    assert seen(state) == before
    assert [each.jobs["whole"] for each in (state.nodes["n1"], state.nodes["n2"])] == [1, 1]
    is_counted_right(state)


def test_a_start_on_two_nodes_and_a_refused_one_behind_it_are_undone_one_by_one(state: CellState) -> None:
    before = seen(state)
    outer = state.checkpoint()
    assert take(state, "ada", "gang", (*TWO_ON_THE_FIRST, place(2, "n2", 2), place(3, "n1", 4))) is None
    middle = seen(state)
    inner = state.checkpoint()
    assert take(state, "ada", "gang", (place(4, "n1", 5), place(5, "n2", 0))) is not None
    state.rollback(inner)
    assert seen(state) == middle
    state.rollback(outer)
    assert seen(state) == before
    is_counted_right(state)


def test_an_effect_that_is_refused_at_the_second_node_is_undone_with_those_before_it(state: CellState) -> None:
    before = seen(state)
    spec = enqueued("two", workers=3, resources=Resources(gpu_milli=GPU))
    wrong = started("two", place(0, "n1", 2), place(1, "n1", 3), place(2, "n2", 0))
    with pytest.raises(DamagedLog, match="n2: device 0 is not free"):
        then(state, e.JobCancelled(job="gang"), spec, wrong)
    assert seen(state) == before
    is_counted_right(state)
