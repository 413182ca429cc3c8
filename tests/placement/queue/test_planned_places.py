"""Places that were planned for a job: which state and which job they hold for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fallow.services.placement.queue.planned_places import are_places_of, is_in_service_by, may_start_in
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events.base import Event
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import JobSpec, NodeStatus, Resources, WorkerPlace
from fallow.shared.events.operations import Drain, PlanMaintenance
from tests.placement.owners.test_kept_places import FILE
from tests.placement.quotas.test_borrowing import share
from tests.placement.worlds.world import CELL, World, admitted, joined, report, set_quotas, spec_of, started


def place(rank: int, node: str, *devices: int, milli: int = 1_000, cpu: int = 0) -> WorkerPlace:
    return WorkerPlace(rank=rank, node=node, devices=devices, gpu_milli=milli, cpu_milli=cpu)


JOB = spec_of("own", 2)
PLACES = (place(0, "n1", 0, 1, milli=2_000),)


def world_of(*events: Event, **node: Any) -> World:
    world = World(FILE)
    world.tell(joined("n1", 4, **{"cpu_milli": 4_000, **node}), *events)
    return world


def test_free_places_on_a_node_that_takes_the_job_hold() -> None:
    assert may_start_in(world_of().state, JOB, PLACES)


def is_silent(state: CellState) -> None:
    state.nodes["n1"].silent_wall_ms = 1


def is_full(state: CellState) -> None:
    state.nodes["n1"].is_full = True


@pytest.mark.parametrize("becomes", [is_silent, is_full])
def test_they_do_not_hold_on_a_node_that_takes_nothing_new(becomes: Callable[[CellState], None]) -> None:
    state = world_of().state
    becomes(state)
    assert not may_start_in(state, JOB, PLACES)


def test_they_do_not_hold_where_the_job_may_not_be() -> None:
    assert not may_start_in(world_of(taints=("hot",)).state, JOB, PLACES)
    assert not may_start_in(world_of().state, replace(JOB, node_labels=("zone=a",)), PLACES)


@pytest.mark.parametrize(("run_ms", "holds"), [(100, True), (101, False)])
def test_they_do_not_hold_where_maintenance_begins_before_the_job_is_over(run_ms: int, *, holds: bool) -> None:
    state = world_of(PlanMaintenance(cell=CELL, node="n1", begin_ms=100, end_ms=200)).state
    assert may_start_in(state, replace(JOB, estimate_run_ms=run_ms), PLACES) is holds


def test_they_do_not_hold_beyond_a_limit() -> None:
    world = world_of(set_quotas(replace(share("ada", 0), limit_milli=1_000)))
    assert not may_start_in(world.state, JOB, PLACES)


def test_they_do_not_hold_without_cpus_for_all_workers() -> None:
    wants = Resources(gpu_milli=1_000, cpu_milli=2_000)
    spec = replace(spec_of("own", 1, 2), resources=wants)
    places = (place(0, "n1", 0, cpu=2_000), place(1, "n1", 1, cpu=2_000))
    assert may_start_in(world_of(cpu_milli=4_000).state, spec, places)
    assert not may_start_in(world_of(cpu_milli=3_000).state, spec, places)


def test_shares_of_one_device_do_not_hold_beyond_all_of_it() -> None:
    spec = replace(spec_of("own", 1, 2), resources=Resources(gpu_milli=600))
    assert not may_start_in(world_of().state, spec, (place(0, "n1", 0, milli=600), place(1, "n1", 0, milli=600)))
    assert may_start_in(world_of().state, spec, (place(0, "n1", 0, milli=600), place(1, "n1", 1, milli=600)))


def test_places_on_a_failed_device_are_none() -> None:
    assert not are_places_of(world_of(report("n1", failed=(1,))).state, JOB, PLACES, 0)


def test_places_on_a_silent_node_are_none() -> None:
    state = world_of().state
    is_silent(state)
    assert not are_places_of(state, JOB, PLACES, 0)


def test_places_of_one_job_are_in_one_pool() -> None:
    state = world_of(joined("x1", 4, pool="extra")).state
    spec: JobSpec = spec_of("own", 1, 2)
    assert are_places_of(state, spec, (place(0, "x1", 0), place(1, "x1", 1)), 0)
    assert not are_places_of(state, spec, (place(0, "n1", 0), place(1, "x1", 0)), 0)


def test_places_in_another_pool_or_of_another_gpu_type_are_none() -> None:
    state = world_of().state
    assert are_places_of(state, replace(JOB, pools=("train",), gpu_type="gpu"), PLACES, 0)
    assert not are_places_of(state, replace(JOB, pools=("extra",)), PLACES, 0)
    assert not are_places_of(state, replace(JOB, gpu_type="new"), PLACES, 0)


def test_they_do_not_hold_without_memory_for_all_workers() -> None:
    spec = replace(spec_of("own", 1, 2), resources=Resources(gpu_milli=1_000, memory_mib=2_000))
    held = tuple(replace(place(rank, "n1", rank), memory_mib=2_000) for rank in range(2))
    assert may_start_in(world_of(memory_mib=4_000).state, spec, held)
    assert not may_start_in(world_of(memory_mib=3_999).state, spec, held)


def test_a_node_that_leaves_for_its_maintenance_is_back_behind_it_unless_it_is_to_stay_closed() -> None:
    world = world_of(PlanMaintenance(cell=CELL, node="n1", begin_ms=40, end_ms=60), admitted(spec_of("long", 4)))
    world.tell(started("long"))
    world.listens = False
    world.pass_time(40)
    node = world.state.nodes["n1"]
    assert (node.status, node.is_out_for_maintenance) == (NodeStatus.DRAINING, True)
    assert [is_in_service_by(node, start_ms) for start_ms in (59, 60)] == [False, True]
    world.tell(Drain(cell=CELL, node="n1"))
    assert not is_in_service_by(node, 60)
