"""Nodes come, go silent, come back, are drained: what becomes of them and of what runs there."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import NodeStatus, RetryPolicy, RunStatus
from fallow.shared.events.nodes import DeviceFailed, NodeReport, NodeReturned
from fallow.shared.events.operations import Cordon, Drain, Uncordon
from fallow.shared.events.reasons import ProposalCode, StopReason
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    codes,
    finished,
    is_ready,
    joined,
    kinds,
    lost,
    report,
    seen,
    spec_of,
    started,
    stopped,
)


def with_gang() -> World:
    """A gang that runs on n1 and n2, and a job of its own on n1."""
    world = cell_with(joined("n1"), joined("n2"))
    world.run(spec_of("single", 4, priority=1))
    world.run(spec_of("gang", 4, workers=3))
    assert world.nodes_of("gang") == ["n1", "n2", "n2"]
    return world


def why(effects: list[e.AnyEffect]) -> list[StopReason]:
    return [effect.why for effect in effects if isinstance(effect, e.JobStopping)]


def test_a_new_node_takes_work_at_once() -> None:
    world = cell_with()
    world.tell(joined("n1"))
    assert is_ready(world, "n1")


def test_a_node_that_joins_again_in_its_boot_changes_nothing() -> None:
    world = with_gang()
    assert world.tell(joined("n1")) == []


def test_a_node_cannot_join_under_another_name_and_nothing_is_remembered_of_it() -> None:
    world = cell_with(joined("n2"))
    posing = replace(joined("n2", 4), node="n1")
    assert world.tell(posing) == []
    assert [str(stray.text) for _, stray in world.service.take_strays()] == ["spec.id: n2 is not node n1, which joins"]
    assert list(world.state.nodes) == ["n2"]
    assert kinds(world.tell(replace(joined("n1"), boot="boot-2"))) == ["NodeChanged"]


def test_a_new_boot_ends_what_ran_there_and_stops_the_gangs_it_was_part_of() -> None:
    world = with_gang()
    made = world.tell(joined("n1", boot="boot-2"))
    assert why(made) == [StopReason.NODE_LOST]
    assert (world.job("single").status, world.job("single").attempt) == (JobStatus.STARTING, 2)
    assert world.job("gang").status is JobStatus.STOPPING
    assert world.state.nodes["n1"].boot == "boot-2"
    assert is_ready(world, "n1")


def test_a_gangs_place_on_a_new_boot_stays_held_until_the_gang_is_gone() -> None:
    world = with_gang()
    world.tell(joined("n1", boot="boot-2"))
    assert (world.nodes_of("single"), world.state.nodes["n1"].gpus_free) == (["n1"], 0)
    assert "JobRequeued" in kinds(world.tell(stopped("gang", "n2")))
    assert world.job("gang").failures == 0


def test_a_node_with_other_hardware_takes_nothing_until_its_old_gang_is_gone() -> None:
    world = with_gang()
    world.tell(joined("n1", 2, boot="boot-2"))
    assert world.state.nodes["n1"].spec.gpus == 8
    world.tell(admitted(spec_of("small", 1, priority=9)))
    assert world.job("small").workers == ()
    made = world.tell(stopped("gang", "n2"))
    assert world.state.nodes["n1"].spec.gpus == 2
    assert "NodeChanged" in kinds(made)
    assert world.nodes_of("small") == ["n1"]


@pytest.mark.parametrize("news", [Cordon(cell=CELL, node="n1"), lost("n1", boot="boot-2"), None])
def test_what_a_node_has_become_outlives_all_that_happens_meanwhile(news: object) -> None:
    world = with_gang()
    world.tell(joined("n1", 2, boot="boot-2"))
    if news is None:
        world.restart()
    else:
        world.tell(news)  # type: ignore[arg-type]
        world.tell(report("n1", boot="boot-2"))
    assert world.state.nodes["n1"].offered is not None
    world.tell(stopped("gang", "n2"))
    assert world.state.nodes["n1"].spec.gpus == 2
    assert world.state.offers == {}


def test_other_hardware_in_the_same_boot_is_taken_in_when_the_node_is_empty() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.tell(joined("n1", 4))
    assert (world.state.nodes["n1"].spec.gpus, world.state.nodes["n1"].is_schedulable) == (8, False)
    world.tell(finished("job"))
    assert (world.state.nodes["n1"].spec.gpus, world.state.nodes["n1"].is_schedulable) == (4, True)


@pytest.mark.parametrize(
    "other", [{"memory_mib": 1_000}, {"cpu_milli": 4_000}, {"gpu_type": "other"}, {"pool": "other"}, {"gpus": 4}]
)
def test_no_hardware_of_a_node_changes_under_a_job_and_its_labels_and_taints_change_at_once(
    other: dict[str, Any],
) -> None:
    first: dict[str, Any] = {"memory_mib": 64_000, "cpu_milli": 32_000}
    world = cell_with(joined("n1", **first))
    world.run(spec_of("job"))
    before = world.state.nodes["n1"].spec
    again = joined("n1", **{**first, **other}, labels={"zone": "a"}, taints=("hot",))
    world.tell(again)
    node = world.state.nodes["n1"]
    assert node.spec == replace(before, labels={"zone": "a"}, taints=("hot",))
    assert (node.offered, node.is_schedulable) == (again.spec, False)
    world.tell(finished("job"))
    assert (world.state.nodes["n1"].spec, world.state.nodes["n1"].offered) == (again.spec, None)


@pytest.mark.parametrize("order", [Cordon(cell=CELL, node="n2"), Drain(cell=CELL, node="n2")])
def test_an_order_comes_with_what_frees_a_node_that_has_become_another(order: Cordon | Drain) -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.run(spec_of("gang", 8, workers=2))
    world.tell(joined("n2", 4))
    world.tell(lost("n2"), report("n2"))
    assert world.state.nodes["n2"].offered is not None
    world.tell(joined("n1", boot="boot-2"), order)
    node = world.state.nodes["n2"]
    assert (world.unwritable, node.spec.gpus, node.offered) == ([], 4, None)
    assert node.status is (NodeStatus.CORDONED if isinstance(order, Cordon) else NodeStatus.DRAINING)


def test_a_job_whose_nodes_are_lost_again_and_again_waits_for_longer_each_time() -> None:
    world, waits = cell_with(joined("n1")), list[int]()
    world.listens = False
    world.run(spec_of("job", retry=RetryPolicy(backoff_ms=1_000, backoff_max_ms=12_000)))
    for attempt in range(1, 8):
        world.tell(lost("n1"), report("n1"))
        waits.append(world.job("job").not_before_ms - world.now_ms if world.job("job").not_before_ms else 0)
        world.pass_time(12_000)
        world.tell(started("job", attempt=attempt + 1))
    assert waits == [0, 1_000, 2_000, 4_000, 8_000, 12_000, 12_000]
    assert world.job("job").failures == 0


def test_a_job_that_ran_well_for_an_hour_counts_its_losses_anew() -> None:
    world = cell_with(joined("n1"))
    world.listens = False
    world.run(spec_of("job"))
    world.tell(lost("n1"), report("n1"))
    world.tell(started("job", attempt=2))
    world.pass_time(3_600_000)
    world.tell(lost("n1"))
    assert (world.job("job").losses, world.job("job").not_before_ms) == (1, world.now_ms)


@pytest.mark.parametrize("news", [started("single", "n1"), lost("n1"), report("n1"), finished("single", "n1")])
def test_what_an_old_boot_says_is_ignored(news: object) -> None:
    world = with_gang()
    world.tell(joined("n1", boot="boot-2"))
    assert world.tell(news) == []  # type: ignore[arg-type]


def test_an_operators_wish_outlives_a_boot() -> None:
    world = cell_with(joined("n1"))
    world.tell(Cordon(cell=CELL, node="n1", reason="fan"))
    world.tell(joined("n1", boot="boot-2"))
    assert (world.state.nodes["n1"].status, world.state.nodes["n1"].reason) == (NodeStatus.CORDONED, "fan")


def test_when_one_node_of_a_gang_is_lost_the_gang_stops_whole_and_waits_again_for_free() -> None:
    world = with_gang()
    made = world.tell(lost("n1"))
    assert kinds(made)[0] == "LeaseExpired"
    assert why(made) == [StopReason.NODE_LOST]
    assert world.job("single").status is JobStatus.QUEUED
    world.tell(stopped("gang", "n2"))
    assert (world.job("gang").status, world.job("gang").failures, world.job("gang").not_before_ms) == (
        JobStatus.QUEUED,
        0,
        0,
    )


def test_when_all_nodes_of_a_gang_are_lost_nothing_is_waited_for() -> None:
    world = with_gang()
    world.tell(lost("n1"), lost("n2"))
    assert world.job("gang").status is JobStatus.QUEUED


def test_a_node_is_lost_only_once() -> None:
    world = with_gang()
    world.tell(lost("n1"))
    assert world.tell(lost("n1")) == []


def test_a_lost_node_takes_nothing_until_it_reports_that_nothing_is_left() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.tell(lost("n1"))
    assert world.job("job").workers == ()
    assert world.tell(report("n1", seen("job"))) == []
    assert not is_ready(world, "n1")
    world.tell(report("n1"))
    assert is_ready(world, "n1")


def test_a_run_that_is_over_is_no_hindrance_to_return() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.tell(lost("n1"))
    world.tell(report("n1", seen("job", RunStatus.STOPPED)))
    assert is_ready(world, "n1")


def test_what_was_declared_over_is_a_stray_also_while_its_gang_still_stops() -> None:
    world = with_gang()
    world.tell(lost("n1"))
    assert world.tell(report("n1", seen("gang"))) == []
    assert not is_ready(world, "n1")


def test_a_loss_and_a_report_in_one_batch_are_taken_in_their_order() -> None:
    world = with_gang()
    world.tell(lost("n1"), report("n1", seen("gang")))
    assert not is_ready(world, "n1")


def test_a_node_may_return_with_a_message_of_its_own() -> None:
    world = cell_with(joined("n1"))
    world.tell(lost("n1"))
    world.tell(NodeReturned(cell=CELL, node="n1", boot="boot-1", seq=9))
    assert is_ready(world, "n1")


@pytest.mark.parametrize("says", [NodeReport, NodeReturned])
def test_a_node_that_tells_only_some_of_its_runs_does_not_come_back_by_that(
    says: type[NodeReport | NodeReturned],
) -> None:
    world = cell_with(joined("n1"))
    world.tell(lost("n1"))
    world.tell(says(cell=CELL, node="n1", boot="boot-1", seq=9, partial=True))
    assert not is_ready(world, "n1")
    world.tell(says(cell=CELL, node="n1", boot="boot-1", seq=10))
    assert is_ready(world, "n1")


def test_what_a_part_of_a_report_tells_of_runs_counts_at_once() -> None:
    world = with_gang()
    world.tell(replace(report("n1", seen("gang")), partial=True), replace(report("n2", seen("gang")), partial=True))
    assert world.job("gang").status is JobStatus.RUNNING


def test_a_lost_node_that_joins_anew_is_ready() -> None:
    world = with_gang()
    world.tell(lost("n1"))
    world.tell(joined("n1"))
    assert is_ready(world, "n1")


def test_a_node_whose_boots_were_told_in_the_wrong_order_is_not_locked_out_for_ever() -> None:
    world = cell_with(joined("n1", boot="boot-3"), joined("n1", boot="boot-2"))
    assert world.tell(joined("n1", boot="boot-3")) == []
    world.pass_time(40_001)
    world.tell(joined("n1", boot="boot-3"))
    assert (world.state.nodes["n1"].boot, is_ready(world, "n1")) == ("boot-3", True)


def test_a_finished_run_on_a_lost_node_came_too_late() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    world.tell(lost("n1"))
    assert world.tell(finished("job", "n1")) == []
    assert world.job("job").status is JobStatus.QUEUED


def test_a_device_fails_once_and_gets_no_new_work() -> None:
    world = cell_with(joined("n1", 2))
    broken = DeviceFailed(cell=CELL, node="n1", boot="boot-1", seq=1, device=0)
    assert kinds(world.tell(broken)) == ["DeviceChanged"]
    assert world.tell(broken, report("n1", failed=(0, 99))) == []
    world.run(spec_of("job"))
    assert world.job("job").workers[0].devices == (1,)


def test_a_new_boot_heals_the_devices() -> None:
    world = cell_with(joined("n1"))
    world.tell(report("n1", failed=(0, 3)))
    world.tell(joined("n1", boot="boot-2"))
    assert world.state.nodes["n1"].gpus_free == 8


def test_a_cordoned_node_keeps_its_work_and_takes_no_more() -> None:
    world = cell_with(joined("n1"))
    world.run(spec_of("job"))
    assert kinds(world.tell(Cordon(cell=CELL, node="n1"))) == ["NodeChanged"]
    assert world.job("job").status is JobStatus.RUNNING
    world.tell(Uncordon(cell=CELL, node="n1"))
    assert is_ready(world, "n1")


def test_a_drain_stops_what_still_runs_at_its_deadline() -> None:
    world = with_gang()
    assert kinds(world.tell(Drain(cell=CELL, node="n1", deadline_ms=5_000))) == ["NodeChanged"]
    assert world.service.next_cell_ms() == 5_000
    assert world.pass_time(4_999) == []
    assert why(world.pass_time(1)) == [StopReason.DRAINED, StopReason.DRAINED]
    world.tell(stopped("gang", "n1"), stopped("gang", "n2"), stopped("single", "n1"))
    assert (world.job("gang").status, world.nodes_of("single")) == (JobStatus.QUEUED, ["n2"])
    assert {world.job(job).failures for job in ("gang", "single")} == {0}


def test_a_second_drain_stops_what_runs_at_its_own_deadline_and_nothing_at_the_first_ones() -> None:
    world = with_gang()
    world.tell(Drain(cell=CELL, node="n1", deadline_ms=5_000))
    world.tell(Drain(cell=CELL, node="n1", deadline_ms=9_000))
    assert world.pass_time(8_999) == []
    assert why(world.pass_time(1)) == [StopReason.DRAINED, StopReason.DRAINED]


def test_a_drain_without_a_deadline_stops_its_work_at_once() -> None:
    assert why(with_gang().tell(Drain(cell=CELL, node="n1"))) == [StopReason.DRAINED, StopReason.DRAINED]


def test_an_uncordon_calls_a_drain_off() -> None:
    world = with_gang()
    world.tell(Drain(cell=CELL, node="n1", deadline_ms=5_000))
    world.tell(Uncordon(cell=CELL, node="n1"))
    assert world.pass_time(9_000) == []


@pytest.mark.parametrize("wish", [Cordon, Uncordon, Drain])
def test_an_operation_on_an_unknown_node_is_refused(wish: type[Cordon | Uncordon | Drain]) -> None:
    assert codes(cell_with().tell(wish(cell=CELL, node="n9"))) == [ProposalCode.NODE_CHANGED]


@pytest.mark.parametrize("wish", [Cordon, Uncordon, Drain])
def test_an_operation_on_a_lost_node_is_refused_and_not_forgotten_silently(
    wish: type[Cordon | Uncordon | Drain],
) -> None:
    world = cell_with(joined("n1"))
    world.tell(lost("n1"))
    assert codes(world.tell(wish(cell=CELL, node="n1"))) == [ProposalCode.NODE_CHANGED]


def test_a_node_that_was_being_drained_when_it_was_lost_goes_on_draining_when_it_returns() -> None:
    world = cell_with(joined("n1"))
    world.tell(Drain(cell=CELL, node="n1", deadline_ms=5_000, reason="move"))
    world.tell(lost("n1"))
    world.tell(report("n1"))
    assert (world.state.nodes["n1"].status, world.state.nodes["n1"].reason) == (NodeStatus.DRAINING, "move")
