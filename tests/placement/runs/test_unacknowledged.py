"""A node that has yet to confirm too many starts takes nothing new until it does, whatever places jobs."""

from __future__ import annotations

import pytest

from fallow.services.placement.explain.explain import why_not
from fallow.services.placement.policy.policies import POLICIES
from fallow.shared.cluster.fold.rows import rows_of, state_from
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.reasons import PendingReason
from tests.placement.worlds.world import (
    World,
    admitted,
    cell_with,
    joined,
    lost,
    report,
    seen,
    set_policy,
    spec_of,
    started,
)

MAX = 3


def capped(placement: str = "best-fit", most: int = MAX) -> World:
    """Two nodes of 8 GPUs, on each of which at most so many workers may be unconfirmed."""
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(set_policy(placement=placement, max_unacknowledged_starts_per_node=most))
    return world


def submit(world: World, count: int, gpus: int = 1, workers: int = 1, prefix: str = "job") -> None:
    world.tell(*(admitted(spec_of(f"{prefix}-{number}", gpus, workers), number) for number in range(count)))


def starting(world: World) -> list[str]:
    return sorted(job.id for job in world.state.jobs.values() if job.status is JobStatus.STARTING)


def on_each(world: World) -> dict[str, int]:
    """How many workers are on each node."""
    return {node.id: sum(node.jobs.values()) for node in world.state.nodes.values()}


@pytest.mark.parametrize("placement", POLICIES)
def test_no_policy_places_anything_on_a_node_that_is_full_of_starts(placement: str) -> None:
    world = capped(placement)
    submit(world, 10)
    assert on_each(world) == {"n1": MAX, "n2": MAX}
    assert world.state.pools["train"].free_whole == 0


@pytest.mark.parametrize("placement", POLICIES)
def test_what_a_node_confirms_lets_as_much_in(placement: str) -> None:
    world = capped(placement)
    submit(world, 10)
    first = world.nodes_of("job-0")[0]
    world.tell(started("job-0", first), started(here(world, first), first))
    assert on_each(world) == {first: MAX + 2, other(first): MAX}
    assert len(starting(world)) == 2 * MAX


def here(world: World, node: str) -> str:
    """The last job that is starting on the node."""
    return [job for job in starting(world) if world.nodes_of(job) == [node]][-1]


def other(node: str) -> str:
    return "n2" if node == "n1" else "n1"


def test_without_the_limit_everything_starts() -> None:
    world = capped(most=0)
    submit(world, 16)
    assert len(starting(world)) == 16
    assert world.state.unacknowledged is None


def test_a_gang_may_be_larger_than_the_limit_and_closes_its_nodes() -> None:
    world = capped()
    submit(world, 1, gpus=1, workers=12)
    submit(world, 1, prefix="late")
    assert starting(world) == ["job-0"]
    assert world.job("late-0").deferred is PendingReason.UNACKNOWLEDGED


def test_a_part_of_a_gang_that_has_started_counts_no_more() -> None:
    world = capped()
    submit(world, 1, gpus=1, workers=12)
    submit(world, 1, prefix="late")
    world.tell(report("n2", seen("job-0")))
    assert world.job("job-0").runs == {"n1": RunStatus.STARTING, "n2": RunStatus.RUNNING}
    assert world.nodes_of("late-0") == ["n2"]


def test_a_job_that_waits_for_confirmations_is_told_so_and_others_are_told_what_they_lack() -> None:
    world = capped()
    submit(world, 7, gpus=2)
    submit(world, 1, gpus=8, prefix="whole")
    waits = why_not(world.state, world.job("job-6"), (), 0)
    lacks = why_not(world.state, world.job("whole-0"), (), 0)
    assert (waits.codes, waits.recorded) == ((PendingReason.UNACKNOWLEDGED,), PendingReason.UNACKNOWLEDGED)
    assert (lacks.codes, lacks.recorded) == ((PendingReason.NO_FREE_GPUS,), PendingReason.NO_FREE_GPUS)


def test_what_a_lost_node_had_not_confirmed_is_forgotten() -> None:
    world = capped()
    submit(world, 4)
    world.tell(lost("n1"))
    assert world.state.unacknowledged is not None
    assert "n1" not in world.state.unacknowledged.counts
    assert not world.state.nodes["n1"].is_full


def test_the_limit_can_be_changed_and_lifted_while_starts_are_under_way() -> None:
    world = capped()
    submit(world, 10)
    world.tell(set_policy(max_unacknowledged_starts_per_node=MAX + 1))
    assert on_each(world) == {"n1": MAX + 1, "n2": MAX + 1}
    world.tell(set_policy())
    assert len(starting(world)) == 10
    world.tell(set_policy(max_unacknowledged_starts_per_node=1))
    assert [node.is_full for node in world.state.nodes.values()] == [True, True]


def test_a_state_read_from_a_snapshot_knows_which_nodes_are_full() -> None:
    world = capped()
    submit(world, 4)
    read = state_from(rows_of(world.state))
    assert read.unacknowledged == world.state.unacknowledged
    assert [node.is_full for node in read.nodes.values()] == [True, False]
