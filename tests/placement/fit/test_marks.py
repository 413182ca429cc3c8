"""The masks of nodes that suit a job follow every change of the cell, and so do the indices over these nodes alone."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.capacity.capacity import PoolCapacity
from fallow.shared.cluster.capacity.constraints import Needs
from fallow.shared.cluster.capacity.hardware import REMEMBERED_MAX, Hardware, hardware_of
from fallow.shared.cluster.capacity.masks import each_bit, mask_from
from fallow.shared.cluster.capacity.node_filter_index import NodeFilterIndex, allowed, marks_of, needs_of
from fallow.shared.cluster.capacity.topology import (
    LOOKS_TO_INDEX_NODE,
    OUTWARD,
    PARTS_MAX,
    path_of,
    topology_for,
    topology_of,
)
from fallow.shared.cluster.fold.apply import apply
from fallow.shared.cluster.fold.rows import digest_of
from fallow.shared.cluster.model.node import ZONE_NAME, Node, is_in_zone
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, Level, NodeStatus
from tests.hypothesis_profile import reaches
from tests.placement.fit.test_network_index import MOVES, Cell, Move
from tests.placement.worlds.networks import Machine, gang, indices_of, may_use, network, node_spec

JOBS = (
    gang("probe"),
    gang("probe", tolerations=("hot",)),
    gang("probe", tolerations=("slow", "hot"), node_labels=("zone=z1",)),
    gang("probe", node_labels=("!zone",)),
    gang("probe", node_labels=("zone", "zone!=z1"), tolerations=("hot",), exclusive=True),
    gang("probe", exclusive=True),
)
MARKED_MOVES = (
    st.lists(
        st.tuples(
            st.sampled_from(("label", "label", "taint", "lone", "lose", "start", "end")),
            st.integers(0, 9),
            st.sampled_from(("z1", "z2", None)),
        ),
        max_size=15,
    )
    | MOVES
)


class MarkedCell(Cell):
    """A cell whose nodes have labels and taints, and jobs that are alone on theirs."""

    def do(self, move: Move) -> None:
        what, number, text = move
        nodes = sorted(self.state.nodes)
        node = self.state.nodes[nodes[number % len(nodes)]]
        match what:
            case "label":
                labels = {} if text is None else {"zone": text}
                self.change(replace(node.spec, labels=labels), node.status)
            case "taint":
                taints = (("hot",), ("hot", "slow"), ())[number % 3]
                self.change(replace(node.spec, taints=taints), node.status)
            case "lone":
                self.start(gang("x", number % 3 + 1, number % 2 + 1, exclusive=True, tolerations=("hot", "slow")))
            case "lose" if node.status is not NodeStatus.LOST:
                apply(self.state, e.LeaseExpired(node=node.id, boot="boot-1"), 0)
            case _:
                super().do(move)

    def ask(self) -> None:
        """The masks and the indices over parts, beside what each node says."""
        for pool in self.state.pools.values():
            for job in JOBS:
                self._is_right(pool, job)
            fresh, kept = (
                NodeFilterIndex.of(pool, [self.state.nodes[node] for node in pool.ids]),
                marks_of(self.state, pool),
            )
            assert kept.empty == fresh.empty
            hardware = hardware_of(self.state, pool)
            self._knows_units(pool, hardware)
            assert hardware.kinds == Hardware(pool, [self.state.nodes[node] for node in pool.ids]).kinds

    def _knows_units(self, pool: PoolCapacity, hardware: Hardware) -> None:
        """Which nodes of which kinds are in each unit, beside what each node says."""
        specs = [self.state.nodes[node].spec for node in pool.ids]
        kind_of = {number: kind for kind, mask in hardware.kinds.items() for number in each_bit(mask)}
        for level, job in product(Level, JOBS):
            among = marks_of(self.state, pool).members(self.state, needs_of(self.state, pool, job))
            naive: dict[tuple[str, ...], list[int]] = {}
            for number in each_bit(among):
                path = (*path_of(specs[number]), specs[number].id)[: 5 - OUTWARD.index(level)]
                if number in kind_of and path[-1]:
                    naive.setdefault(path, []).append(number)
            found: list[list[int]] = []
            for units in hardware.in_units(level, among):
                here = [number + units.first for number in each_bit(units.nodes)]
                each = [[number] for number in here] if level is Level.NODE else [here]
                assert len(each) == units.many
                assert all(Counter(kind_of[number] for number in unit) == units.kinds for unit in each)
                found += each
            assert sorted(found) == sorted(naive.values())

    def _is_right(self, pool: PoolCapacity, job: JobSpec) -> None:
        state = self.state
        usable = allowed(state, pool, job)
        found = range(len(pool.ids)) if usable is None else each_bit(usable)
        held = [node for node in pool.ids if state.nodes[node].alone is not None]
        right = [node for node in pool.ids if may_use(state, job, node) and node not in held]
        assert [node for node in map(pool.ids.__getitem__, found) if node not in held] == right
        part = topology_for(state, pool, job)
        part.ranking(Level.LEAF, 1)
        for node, free in zip(part.nodes, part.free, strict=True):
            is_open = node.is_schedulable and may_use(state, job, node.id)
            assert free == (node.gpus_free if is_open else 0)
        left_out = {state.nodes[node].id for node in pool.ids} - {node.id for node in part.nodes}
        assert not [node for node in sorted(left_out) if may_use(state, job, node)]


@given(before=MARKED_MOVES, undone=MARKED_MOVES, after=MARKED_MOVES)
def test_the_masks_are_right_after_whatever_happens(before: list[Move], undone: list[Move], after: list[Move]) -> None:
    machines = [Machine("a", zone="z1"), Machine("a", taints=("hot",)), Machine("b", zone="z2"), Machine(None)]
    cell = MarkedCell(network(machines, "e-spread"))
    cell.ask()
    for move in before:
        cell.do(move)
        cell.ask()
    mark = cell.state.checkpoint()
    before_rows = digest_of(cell.state)
    for move in undone:
        cell.do(move)
        cell.ask()
    reaches("what is undone has changed what the masks go by", digest_of(cell.state) != before_rows)
    cell.state.rollback(mark)
    cell.ask()
    for move in after:
        cell.do(move)
    cell.ask()


def relabelled(state: CellState, number: int, zone: str) -> None:
    spec = node_spec(number, Machine("a", zone=zone))
    apply(state, e.NodeChanged(spec=spec, boot="boot-1", status=NodeStatus.READY), 0)


def test_a_part_stays_while_its_nodes_are_the_same_whatever_becomes_of_others() -> None:
    state = network([Machine("a", zone=zone) for zone in ("z1", "z1", "z2", "z3")])
    job = gang("probe", node_labels=("zone=z1",))
    first = topology_for(state, state.pools["train"], job)
    relabelled(state, 3, "z2")
    assert topology_for(state, state.pools["train"], job) is first
    relabelled(state, 3, "z1")
    assert len(topology_for(state, state.pools["train"], job).nodes) == 3


def in_zone(number: int) -> Needs:
    return Needs((f"zone=z{number}",), (), exclusive=False)


def zones(many: int) -> tuple[CellState, PoolCapacity]:
    state = network([Machine("a", zone=f"z{number}") for number in range(many)])
    return state, state.pools["train"]


def test_only_so_many_parts_are_kept_and_one_round_after_another_finds_them() -> None:
    state, pool = zones(PARTS_MAX + 10)
    for _ in range(3):
        begun = pool.effort.looks
        for number in range(PARTS_MAX + 10):
            assert len(topology_of(state, pool, needs=in_zone(number)).nodes) == 1
        made = pool.effort.looks - begun
        assert len(indices_of(pool)) == PARTS_MAX
    assert made == 10 * LOOKS_TO_INDEX_NODE


def test_a_part_that_is_not_asked_for_any_more_makes_room_in_the_end() -> None:
    state, pool = zones(2 * PARTS_MAX)
    for number in range(PARTS_MAX):
        topology_of(state, pool, needs=in_zone(number))
    for _ in range(20):
        for number in range(PARTS_MAX - 10, 2 * PARTS_MAX - 10):
            topology_of(state, pool, needs=in_zone(number))
    begun = pool.effort.looks
    for number in range(PARTS_MAX - 10, 2 * PARTS_MAX - 10):
        topology_of(state, pool, needs=in_zone(number))
    assert pool.effort.looks == begun


def test_whatever_jobs_ask_for_those_that_may_use_the_same_nodes_share_an_index() -> None:
    state = network([Machine("a", zone=zone) for zone in ("z1", "z1", "z2")])
    pool = state.pools["train"]
    found = [topology_of(state, pool, needs=Needs(("zone=z1", f"!q{k}"), (), exclusive=False)) for k in range(99)]
    assert len({id(topology) for topology in found}) == 1
    whole = [topology_of(state, pool, needs=Needs((f"!q{k}",), (), exclusive=False)) for k in range(99)]
    assert {id(topology) for topology in whole} == {id(topology_of(state, pool))}


def test_an_index_for_jobs_that_are_alone_on_their_nodes_is_another_one() -> None:
    state = network([Machine("a", zone="z1")])
    (pool,) = state.pools.values()
    both = [topology_of(state, pool, needs=Needs((), (), exclusive=exclusive)) for exclusive in (False, True)]
    assert [topology.exclusive for topology in both] == [False, True]


def test_a_part_that_nobody_asks_for_is_given_up() -> None:
    state, pool = zones(PARTS_MAX + 1)
    for number in range(PARTS_MAX):
        topology_of(state, pool, needs=in_zone(number))
    for number in range(1_100):
        apply(state, e.DeviceChanged(node="n000", device=0, healthy=bool(number % 2)), 0)
        assert state.pools, "each change is counted"
    topology_of(state, pool, needs=in_zone(PARTS_MAX))
    kept = [topology.specs[0].labels["zone"] for topology in indices_of(pool)]
    assert kept == [f"z{number}" for number in range(1, PARTS_MAX + 1)]


def test_a_wide_mask_has_the_bits_that_it_is_made_of() -> None:
    numbers = [0, 1, 1_023, 1_024, 99_999]
    assert list(each_bit(mask_from(numbers, 100_000))) == numbers
    assert mask_from([], 0) == 0


def test_what_is_remembered_of_the_hardware_of_a_pool_is_bounded_and_one_round_after_another_finds_most_of_it() -> None:
    state = network([Machine("a")])
    hardware, asked = hardware_of(state, state.pools["train"]), REMEMBERED_MAX + 10
    for _ in range(3):
        missed = [number for number in range(asked) if number not in hardware.remembered]
        for number in missed:
            hardware.remember(number, number)
        assert len(hardware.remembered) == REMEMBERED_MAX
    assert len(missed) == asked - REMEMBERED_MAX


def test_what_is_not_asked_for_any_more_makes_room_in_the_end() -> None:
    state = network([Machine("a")])
    hardware = hardware_of(state, state.pools["train"])
    for number in range(20 * REMEMBERED_MAX):
        hardware.remember(number, number)
    assert 0 not in hardware.remembered


def test_nodes_of_one_form_are_tested_once_for_all_of_them() -> None:
    zones = (ZONE_NAME, ZONE_NAME, "z2", ZONE_NAME, "z3")
    state, tested = network([Machine("a", zone=zone) for zone in zones]), list[str]()

    def test(node: Node) -> bool:
        tested.append(node.id)
        return is_in_zone(node)

    assert marks_of(state, state.pools["train"]).passing(state, test) == 0b01011
    assert len(tested) == 2


def test_what_is_in_each_unit_is_found_by_units_and_not_by_nodes() -> None:
    state = network([Machine(f"l{number // 50}") for number in range(200)])
    hardware = hardware_of(state, state.pools["train"])
    every = (1 << 200) - 1
    hardware.in_units(Level.LEAF, every)
    begun = state.capacity.effort.looks
    for number in range(20):
        found = hardware.in_units(Level.LEAF, every ^ 1 << number)
        assert [units.nodes.bit_count() for units in found] == [49, 50, 50, 50]
    assert state.capacity.effort.looks - begun == 20 * 4
