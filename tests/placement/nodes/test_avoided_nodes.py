"""A job that is tried again avoids the nodes of its last failures while it fits elsewhere; so does a new writer."""

from __future__ import annotations

import pytest

from fallow.services.placement.lifecycle.runs.retry import RUNS_WELL_MS
from fallow.shared.events import nodes as n
from fallow.shared.events.effects import AVOIDED_MAX
from fallow.shared.events.fields.values import Level, NodeRole, NodeStatus, Position, RetryPolicy, TopologyRequest, Wish
from fallow.shared.events.operations import PlanMaintenance
from tests.placement.worlds.replicas import all_start, loose, word
from tests.placement.worlds.replicas import service as replica
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cell_with,
    failed,
    joined,
    lost,
    report,
    spec_of,
    started,
    stopped,
)

PATIENT = RetryPolicy(budget=100, backoff_ms=0, backoff_max_ms=0)


def cell(*gpus: int) -> World:
    """Nodes n1, n2, ... with so many GPUs each; placement walks all that wait."""
    return cell_with(*(joined(f"n{number + 1}", many) for number, many in enumerate(gpus)))


def test_after_a_failure_a_job_goes_to_another_node() -> None:
    world = cell(1, 8)
    world.tell(admitted(spec_of("job", retry=PATIENT)))
    world.tell(started("job"), failed("job"))
    assert world.job("job").avoid == ("n1",)
    assert world.nodes_of("job") == ["n2"]


def test_a_new_writer_avoids_the_same_nodes() -> None:
    world = cell(1, 8)
    world.tell(admitted(spec_of("job", retry=RetryPolicy(budget=1, backoff_ms=1_000))))
    world.tell(started("job"), failed("job"))
    world.restart()
    world.pass_time(1_000)
    assert world.nodes_of("job") == ["n2"]


def test_a_job_that_starts_in_one_walk_behind_others_that_are_like_it_avoids_the_nodes_all_the_same() -> None:
    world = cell(4, 8)
    world.tell(admitted(spec_of("job", retry=RetryPolicy(budget=1, backoff_ms=1_000))))
    world.tell(started("job"), failed("job"))
    world.now_ms = world.wall_ms = 1_000
    world.tell(*(admitted(spec_of(name, priority=1), 1_000) for name in ("first", "second")))
    assert [world.nodes_of(name) for name in ("first", "second", "job")] == [["n1"], ["n1"], ["n2"]]


def test_a_job_that_fits_nowhere_else_goes_back_to_the_node_where_it_failed() -> None:
    world = cell(8, 1)
    world.tell(admitted(spec_of("job", 8, retry=PATIENT)))
    world.tell(started("job"), failed("job"))
    assert (world.job("job").attempt, world.nodes_of("job")) == (2, ["n1"])


def test_where_it_has_failed_on_all_nodes_it_takes_the_one_on_which_that_is_longest_ago() -> None:
    world = cell(8, 8, 8)
    world.tell(admitted(spec_of("job", 8, retry=PATIENT)))
    seen = []
    for attempt in range(1, 7):
        (node,) = world.nodes_of("job")
        seen.append(node)
        world.tell(started("job", node, attempt=attempt), failed("job", node, attempt=attempt))
    assert seen == ["n1", "n2", "n3"] * 2


def test_a_gang_that_needs_some_of_the_nodes_it_avoids_takes_those_of_its_earliest_failures() -> None:
    world = cell(8, 8, 8)
    world.tell(admitted(spec_of("job", 8, 2, retry=PATIENT)))
    seen = []
    for attempt in range(1, 4):
        first, second = world.nodes_of("job")
        seen.append([first, second])
        world.tell(started("job", first, attempt=attempt), started("job", second, attempt=attempt))
        world.tell(failed("job", first, attempt=attempt), stopped("job", second, attempt=attempt))
    assert seen == [["n1", "n2"], ["n2", "n3"], ["n1", "n3"]]


def test_after_the_loss_of_a_node_a_gang_avoids_that_node_alone() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(spec_of("job", 1, 2, retry=PATIENT)))
    world.tell(started("job", "n1"), started("job", "n2"))
    world.tell(lost("n2"))
    world.tell(stopped("job", "n1"))
    world.tell(report("n2"))
    assert world.job("job").avoid == ("n2",)
    assert world.nodes_of("job") == ["n1", "n3"]


def test_a_node_that_did_not_start_its_part_of_a_gang_in_time_is_avoided() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(spec_of("job", 1, 2, retry=PATIENT)))
    world.tell(started("job", "n1"))
    world.hand_over(report("n1"), report("n2"), report("n3"))
    world.listens = False
    world.pass_time(world.state.policy.start_timeout_wall_ms)
    world.listens = True
    world.tell(report("n1"), report("n2"), report("n3"))
    world.tell(stopped("job", "n1"), stopped("job", "n2"))
    assert world.job("job").avoid == ("n2",)
    assert world.nodes_of("job") == ["n1", "n3"]


def test_what_ended_for_another_reason_leaves_the_nodes_as_they_are() -> None:
    world = cell(8)
    world.tell(admitted(spec_of("job", retry=PATIENT)))
    world.tell(started("job"), failed("job"))
    world.tell(started("job", attempt=2))
    assert world.job("job").avoid == ("n1",)


def test_the_last_few_nodes_are_kept_and_none_twice() -> None:
    world = cell(*[1] * (AVOIDED_MAX + 3))
    world.tell(admitted(spec_of("job", retry=PATIENT)))
    for number in range(AVOIDED_MAX + 2):
        world.tell(failed("job", world.nodes_of("job")[0], attempt=number + 1))
        assert len(set(world.job("job").avoid)) == min(number + 1, AVOIDED_MAX)
    assert world.job("job").avoid[-1] not in world.nodes_of("job")


def test_a_job_that_ran_well_for_an_hour_forgets_its_earlier_failures() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(spec_of("job", retry=PATIENT)))
    world.tell(started("job"), failed("job"))
    world.tell(started("job", "n2", attempt=2))
    world.listens = False
    world.pass_time(RUNS_WELL_MS)
    world.tell(failed("job", "n2", attempt=2))
    assert world.job("job").avoid == ("n2",)


def test_a_gang_is_near_together_again_rather_than_on_other_nodes() -> None:
    world = cell_with(*(joined(f"n{number}", position=Position(leaf=f"l{number // 2}")) for number in range(4)))
    world.run(spec_of("other", 8))
    wish = TopologyRequest(level=Level.LEAF, wish=Wish.PREFERRED)
    world.tell(admitted(spec_of("gang", 8, workers=2, topology=wish, retry=PATIENT)))
    near = world.nodes_of("gang")
    world.tell(failed("gang", near[0]), stopped("gang", near[1]))
    assert (world.job("gang").avoid, world.nodes_of("gang")) == ((near[0],), near)


def test_a_replica_stays_in_its_failure_domain_rather_than_on_another_node() -> None:
    world = cell_with(*(joined(f"n{number}", position=Position(leaf=f"l{number}")) for number in range(2)))
    world.tell(admitted(replica("job", 2, spread=Level.LEAF, retry=PATIENT)))
    all_start(world, "job")
    world.tell(word(n.RunFailed, world, "job", 0, exit_code=1))
    world.pass_time(1_000)
    assert sorted(world.nodes_of("job")) == ["n0", "n1"]


def test_a_replica_stays_in_the_zone_rather_than_on_another_node() -> None:
    world = cell_with(joined("z", role=NodeRole.INFERENCE), joined("n"))
    world.tell(admitted(replica("job", 1, retry=PATIENT)))
    all_start(world, "job")
    world.tell(word(n.RunFailed, world, "job", 0, exit_code=1))
    world.pass_time(1_000)
    assert (world.job("job").avoid, world.nodes_of("job")) == (("z",), ["z"])


def test_a_job_goes_to_no_node_with_planned_maintenance_only_to_avoid_another() -> None:
    world = cell(8, 8)
    world.tell(PlanMaintenance(cell=CELL, node="n2", begin_ms=50_000, end_ms=100_000))
    world.tell(admitted(spec_of("job", retry=PATIENT)))
    world.tell(started("job"), failed("job"))
    assert (world.job("job").avoid, world.nodes_of("job")) == (("n1",), ["n1"])


@pytest.mark.parametrize("service", [False, True])
def test_a_single_worker_is_tried_again_on_another_node(service: bool) -> None:
    world = cell(1, 8)
    world.tell(admitted((replica if service else loose)("job", 1, retry=PATIENT)))
    all_start(world, "job")
    (first,) = world.nodes_of("job")
    world.tell(word(n.RunFailed, world, "job", 0, exit_code=1))
    world.pass_time(1_000 if service else 0)
    (second,) = world.nodes_of("job")
    assert (world.job("job").avoid, second != first) == ((first,), True)


def test_a_single_worker_whose_node_was_lost_does_not_go_back_there() -> None:
    world = cell(1, 1, 1)
    world.tell(admitted(loose("job", 2, retry=PATIENT)))
    all_start(world, "job")
    world.tell(lost("n2"))
    assert world.state.nodes["n2"].status is NodeStatus.LOST
    assert world.job("job").avoid == ("n2",)
    assert world.nodes_of("job") == ["n1", "n3"]
