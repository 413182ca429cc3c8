"""What is timed of placement is what it says: the cells, the jobs and the baseline."""

from __future__ import annotations

import pytest

from fallow.bench.load.networked_cell import Network, enqueue, gang, lines_of
from fallow.bench.place import (
    BLOCK_OF_RACKS,
    RACKS_OF_TWO,
    first_fit_by_a_loop,
    speed_of,
    walk_and_start,
)
from fallow.bench.place_mixes import NODE_CPU_MILLI, NODE_MEMORY_MIB, Mix, mixes, round_of_jobs
from fallow.services.placement.owners.owners import Owners
from fallow.services.placement.service import PlacementService
from fallow.shared.cluster.capacity.topology import topology_of
from fallow.shared.cluster.checks.invariants import check_state
from fallow.shared.cluster.model.config import CellFile, CellPart, Pool, Tenant
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.fields.values import Level, WorkerPlace


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


@pytest.mark.parametrize("mix", mixes(), ids=lambda mix: mix.name)
def test_of_each_mix_all_start_but_those_that_fit_nowhere(mix: Mix) -> None:
    state = mix.cell(1_000)
    enqueue(state, [*mix.specs])
    assert walk_and_start(state, lines_of(state)) == mix.workers
    assert check_state(state) == []


@pytest.mark.parametrize("mix", mixes(), ids=lambda mix: mix.name)
def test_of_each_mix_it_decides_what_the_service_decides(mix: Mix) -> None:
    timed, served = mix.cell(1_000), mix.cell(1_000)
    enqueue(timed, [*mix.specs])
    walk_and_start(timed, lines_of(timed))
    serve(served, mix)
    assert places_of(timed) == places_of(served)
    assert timed.tree.kept == served.tree.kept


def test_in_the_mix_of_tenants_places_are_kept_for_owners() -> None:
    mix = _mix("tenants")
    state = mix.cell(1_000)
    enqueue(state, [*mix.specs])
    Owners().note(state, lines_of(state))
    assert state.tree.kept.all


def serve(state: CellState, mix: Mix) -> None:
    """The placement service decides about these jobs until there is nothing left to decide."""
    names = sorted({spec.tenant for spec in mix.specs})
    cell = CellPart(name=state.cell, ordinal=0, pools=(Pool(name="bench", gpus=8_000),))
    file = CellFile(cells=(cell,), tenants=tuple(Tenant(name=name) for name in names))
    service = PlacementService(state, file, writer="placement-1")
    decide_all(service)  # the cell file is in force
    enqueue(state, [*mix.specs])
    service.caught_up(0)
    decide_all(service)


def decide_all(service: PlacementService) -> None:
    goes_on = True
    while goes_on and (tried := service.decide(0, 0)) is not None:
        service.accepted(tried)
        service.note(tuple(tried.effects), 0)
        goes_on = tried.has_more


def places_of(state: CellState) -> dict[str, tuple[WorkerPlace, ...]]:
    return {job.id: job.workers for job in state.jobs.values()}


def test_of_a_cell_so_large_that_one_walk_does_not_look_at_all_of_it_all_jobs_start_too() -> None:
    mix = _mix("friendly")
    assert speed_of(mix, 10_000).per_s > 0


@pytest.mark.parametrize("mix", mixes(), ids=lambda mix: mix.name)
def test_of_each_mix_the_same_jobs_start_behind_a_node_that_came(mix: Mix) -> None:
    assert speed_of(mix, 1_000).after_a_node_came > 0


def test_the_shuffled_mix_is_the_friendly_one_in_another_order() -> None:
    friendly, shuffled = mixes()[:2]
    assert friendly.specs != shuffled.specs
    assert sorted(spec.id for spec in friendly.specs) == sorted(spec.id for spec in shuffled.specs)


def _mix(name: str) -> Mix:
    (found,) = [mix for mix in mixes() if mix.name == name]
    return found


def test_where_it_is_full_one_gpu_of_twenty_is_free_and_no_two_on_one_node() -> None:
    free = [node.free.bit_count() for node in _mix("full").cell(1_000).nodes.values()]
    assert (sum(free), max(free)) == (400, 1)


def test_each_of_twenty_tenants_has_a_twentieth_guaranteed() -> None:
    quotas = _mix("tenants").cell(1_000).quotas
    assert {spec.tenant for spec in _mix("tenants").specs} <= {tenant for tenant, _ in quotas}
    assert sorted(quota.guaranteed_milli for quota in quotas.values())[2:] == [400_000] * 20


def test_jobs_need_up_to_their_share_of_processors_and_memory_and_three_fifths_in_the_mean() -> None:
    wanted = [spec.resources for spec in _mix("own_resources").specs]
    cpus = [each.cpu_milli * 8_000 / (NODE_CPU_MILLI * each.gpu_milli) for each in wanted]
    memory = [each.memory_mib * 8_000 / (NODE_MEMORY_MIB * each.gpu_milli) for each in wanted]
    for shares in (cpus, memory):
        assert 0.19 < min(shares) <= max(shares) <= 1
        assert 0.55 < sum(shares) / len(shares) < 0.65
