"""The index over the network follows every change of the cell: starts and ends, nodes that come, change and fail, and
what is undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.search.gang import place_gang
from fallow.shared.cluster.capacity.capacity import recount
from fallow.shared.cluster.capacity.topology import OUTWARD, Topology, differs_from_recount, topology_of
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.node import is_in_zone
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import (
    GPU,
    JobSpec,
    Level,
    NodeRole,
    NodeSpec,
    NodeStatus,
    TopologyRequest,
    WorkerPlace,
)
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import NAMES, POOL, Machine, gang, indices_of, network, node_spec, start

Move = tuple[str, int, str | None]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(("start", "start", "end", "join", "move", "cordon", "ready", "fail", "zone", "lend")),
        st.integers(0, 9),
        NAMES,
    ),
    max_size=20,
)
SIZES = (1, 2, 3)
"""So many GPUs the workers have for which units are ranked."""


@dataclass
class Cell:
    """A cell to which things happen."""

    state: CellState

    def do(self, move: Move) -> None:
        """Let one thing happen, if it can."""
        what, number, leaf = move
        nodes = sorted(self.state.nodes)
        node = self.state.nodes[nodes[number % len(nodes)]]
        match what:
            case "start":
                self.start(gang("x", number % 3 + 1, number % 4 + 1, topology=TopologyRequest(level=Level.LEAF)))
            case "end" if self.state.jobs:
                job = sorted(self.state.jobs)[number % len(self.state.jobs)]
                apply(self.state, e.JobFinished(job=job, attempt=1), 0)
            case "join":
                self.change(node_spec(10 + number, Machine(leaf)), NodeStatus.READY)
            case "move" if not node.lent_to:
                self.change(replace(node.spec, position=node_spec(0, Machine(leaf)).position), node.status)
            case "cordon" | "ready":
                self.change(node.spec, NodeStatus.CORDONED if what == "cordon" else NodeStatus.READY)
            case "fail":
                apply(self.state, e.DeviceChanged(node=node.id, device=number % node.spec.gpus, healthy=bool(leaf)), 0)
            case "zone":
                self.change(replace(node.spec, role=NodeRole.INFERENCE), node.status)
            case "lend" if node.spec.role is NodeRole.INFERENCE and not node.lent_to and not node.jobs:
                apply(self.state, e.NodeLent(node=node.id, loan="loan-1", to_pool="other", deadline_ms=None), 0)

    def change(self, spec: NodeSpec, status: NodeStatus) -> None:
        """A node is as told from now on."""
        apply(self.state, e.NodeChanged(spec=spec, boot="boot-1", status=status), 0)

    def start(self, spec: JobSpec) -> None:
        """Start a gang if it fits."""
        name = next(f"job-{number}" for number in count() if f"job-{number}" not in {**self.state.jobs, **_over(self)})
        found = place_gang(self.state, replace(spec, id=name))
        if not isinstance(found, PendingReason):
            start(self.state, replace(spec, id=name), found)

    def ask(self) -> None:
        """Have all indices made or brought up to date, and compare them with what counting from nothing gives."""
        for pool in self.state.pools.values():
            found = (topology_of(self.state, pool), topology_of(self.state, pool, "zone", is_in_zone))
            for view in found:
                view.ranking(Level.LEAF, 1)
                view.ranking(Level.SPINE, 2)
        assert self.state.pools == recount(self.state.nodes)
        views = [view for pool in self.state.pools.values() for view in indices_of(pool)]
        fresh_ones = [view for view in views if not view.is_stale]
        assert [differs_from_recount(view) for view in fresh_ones] == [None] * len(fresh_ones)
        for pool in self.state.pools.values():
            fresh = Topology.of([self.state.nodes[node_id] for node_id in pool.ids])
            assert topology_of(self.state, pool).specs == fresh.specs

    def rank(self) -> Topology:
        """The index over the pool, with the units of each level ranked for workers of a few sizes."""
        found = topology_of(self.state, self.state.pools[POOL])
        for level in OUTWARD:
            for gpus in SIZES:
                found.ranking(level, gpus)
        return found

    def rooms(self) -> dict[tuple[Level, int], list[int]]:
        """How many workers of each size each unit of a level holds."""
        found = self.rank()
        return {(level, gpus): list(found.ranking(level, gpus).room) for level in OUTWARD for gpus in SIZES}

    def check(self) -> None:
        """No index of the cell differs from a recount."""
        assert differs_from_recount(self.rank()) is None
        assert check_state(self.state) == []


def _over(cell: Cell) -> dict[str, object]:
    return {
        name: None for name in (f"job-{number}" for number in range(40)) if cell.state.finished.get(name) is not None
    }


@given(before=MOVES, undone=MOVES, after=MOVES)
def test_the_index_is_right_after_whatever_happens(before: list[Move], undone: list[Move], after: list[Move]) -> None:
    cell = Cell(network([Machine(leaf, "s") for leaf in ("a", "a", "b", None)], "e-spread"))
    cell.ask()
    for move in before:
        cell.do(move)
        cell.ask()
    mark = cell.state.checkpoint()
    before_rows = digest_of(cell.state)
    for move in undone:
        cell.do(move)
        for pool in cell.state.pools.values():
            topology_of(cell.state, pool)
    reaches("what is undone has changed what the index of the network goes by", digest_of(cell.state) != before_rows)
    cell.state.rollback(mark)
    cell.ask()
    for move in after:
        cell.do(move)
    cell.ask()


def on(number: int, gpus: int, workers: int, first_rank: int = 0) -> tuple[WorkerPlace, ...]:
    """Places of so many workers on one node, on its first devices."""
    devices = [tuple(range(at * gpus, (at + 1) * gpus)) for at in range(workers)]
    node = f"n{number:03}"
    return tuple(
        WorkerPlace(rank=rank, node=node, devices=each, gpu_milli=gpus * GPU)
        for rank, each in enumerate(devices, first_rank)
    )


def two_leaves() -> Cell:
    """Three nodes of leaf a, two of leaf b, of eight GPUs each; rankings of all levels that have been asked before."""
    cell = Cell(network([Machine(leaf, "s", gpus=8) for leaf in ("a", "a", "a", "b", "b")]))
    cell.rank()
    return cell


SPREAD = {
    "on three nodes of one leaf": ((0, 2), (1, 2), (2, 2)),
    "on one node of each leaf": ((0, 2), (3, 2)),
    "on all nodes of both leaves": ((0, 1), (1, 3), (2, 2), (3, 1), (4, 1)),
    "on one node that is full then": ((1, 4),),
    "on nodes of two leaves that are full then": ((0, 4), (1, 4), (2, 4), (3, 4), (4, 4)),
}


@pytest.mark.parametrize("asks_between", [False, True], ids=["told of at once", "told of one by one"])
@pytest.mark.parametrize("where", SPREAD)
def test_a_gang_that_comes_and_is_undone_moves_its_units_there_and_back(where: str, *, asks_between: bool) -> None:
    cell, places = two_leaves(), list[WorkerPlace]()
    for number, workers in SPREAD[where]:
        places += on(number, 2, workers, len(places))
    before = cell.rooms()
    mark = cell.state.checkpoint()
    start(cell.state, gang("gang", 2, len(places)), tuple(places))
    if asks_between:
        cell.check()
        assert cell.rooms() != before
    cell.state.rollback(mark)
    cell.check()
    assert cell.rooms() == before
    start(cell.state, gang("gang", 2, len(places)), tuple(places))
    cell.check()
    apply(cell.state, e.JobFinished(job="gang", attempt=1), 0)
    cell.check()
    assert cell.rooms() == before


def test_a_unit_of_which_one_node_fills_as_another_becomes_free_holds_as_many_as_before() -> None:
    cell = two_leaves()
    start(cell.state, gang("first", 2, 4), on(0, 2, 4))
    cell.check()
    before = cell.rooms()
    start(cell.state, gang("second", 2, 4), on(1, 2, 4))
    apply(cell.state, e.JobFinished(job="first", attempt=1), 0)
    cell.check()
    rooms = cell.rooms()
    assert (rooms[Level.LEAF, 2], rooms[Level.NODE, 2]) == ([8, 8], [4, 0, 4, 4, 4])
    assert before[Level.LEAF, 2] == rooms[Level.LEAF, 2] != before[Level.NODE, 2]
    start(cell.state, gang("third", 2, 6), (*on(0, 2, 3), *on(2, 2, 3, 3)))
    cell.check()


def test_workers_that_leave_a_part_of_a_group_unused_count_in_their_unit_as_on_each_node() -> None:
    cell = two_leaves()
    for number in range(3):
        start(cell.state, gang(f"job-{number}", 1, 1), on(number, 1, 1))
    cell.check()
    rooms = cell.rooms()
    assert [rooms[Level.LEAF, gpus][0] for gpus in (1, 2, 3)] == [21, 9, 6]
