"""Whether units of the network hold a gang is told by looking at no more nodes than it takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.fit.gang_packing import GangPacker
from fallow.services.placement.search.topology_request import fits_anywhere, seeker_of
from fallow.shared.cluster.capacity.topology import topology_of
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import JobSpec, Level
from tests.hypothesis_profile import reaches
from tests.placement.worlds.networks import POOL, Machine, gang, network, room_on

MACHINES = st.builds(
    Machine,
    leaf=st.sampled_from("abc"),
    spine=st.sampled_from("xy"),
    used=st.integers(0, 4),
    cpu=st.integers(0, 8),
    memory=st.sampled_from((0, 4, 100)),
)
GANGS = st.builds(
    gang,
    st.just("gang"),
    gpus=st.integers(1, 4),
    workers=st.integers(1, 12),
    cpu=st.integers(0, 4),
    memory=st.sampled_from((0, 1, 5)),
)


class CountingGang(GangPacker):
    """Counts the nodes that are looked at."""

    looks = 0

    def room_on(self, slot: int) -> int:
        self.looks += 1
        return super().room_on(slot)


def counting(state: CellState, spec: JobSpec) -> CountingGang:
    return CountingGang(topology_of(state, state.pools[POOL]), spec)


@given(st.lists(MACHINES, min_size=1, max_size=12), GANGS, st.integers(1, 14))
def test_a_unit_holds_so_many_workers_as_its_nodes_hold_together(
    machines: list[Machine], spec: JobSpec, workers: int
) -> None:
    state = network(machines)
    rooms = []
    topology = topology_of(state, state.pools[POOL])
    for level in (Level.LEAF, Level.SPINE, Level.SUPERSPINE):
        for unit in range(len(topology.levels[level].paths)):
            room = sum(room_on(state, spec, topology.nodes[slot].id) for slot in topology.levels[level].slots(unit))
            rooms.append(room)
            gang_ = GangPacker(topology, spec)
            assert gang_.fits(level, unit, workers) == (room >= workers)
            assert gang_.room_in(level, unit) == room
    reaches("a unit holds workers, and fewer than wanted", any(0 < room < workers for room in rooms))


@given(st.lists(MACHINES, min_size=1, max_size=12), GANGS)
def test_a_gang_fits_anywhere_if_all_nodes_together_hold_it(machines: list[Machine], spec: JobSpec) -> None:
    state = network(machines)
    pool = state.pools[POOL]
    rooms = [room_on(state, spec, node) for node in state.nodes]
    room = sum(rooms)
    reaches("nodes hold a gang together, and none holds it alone", room >= spec.workers > max(rooms))
    assert fits_anywhere(seeker_of(state, pool, topology_of(state, pool), spec)) == (room >= spec.workers)


def test_where_most_nodes_are_free_a_few_are_looked_at() -> None:
    state = network([Machine(f"leaf-{number // 4}", "spine", cpu=4) for number in range(400)])
    found = counting(state, gang("gang", 4, 5, cpu=4))
    assert fits_anywhere(found)
    assert found.looks == 5


def test_where_a_gang_fits_nowhere_each_node_is_looked_at_once() -> None:
    state = network([Machine(f"leaf-{number // 4}", "spine", cpu=3) for number in range(40)])
    found = counting(state, gang("gang", 4, 5, cpu=4))
    assert not fits_anywhere(found)
    assert found.looks == 40
