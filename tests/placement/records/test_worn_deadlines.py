"""What is due by itself, much of it at one time: a decision does so much of it as it has steps, in its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.decision.decision import STEPS_MAX, DecisionBuilder
from fallow.services.placement.service import PlacementService
from fallow.shared.events import effects as e
from fallow.shared.events.operations import DeclareLost, Drain
from tests.hypothesis_profile import reaches
from tests.placement.records.test_worn_turns import effects_of_each
from tests.placement.worlds.replicas import all_start, service
from tests.placement.worlds.world import CELL, Fate, World, admitted, joined, set_policy, spec_of, started, update


def test_nodes_that_are_forgotten_at_one_time_go_over_several_decisions() -> None:
    world, names = World(), [f"n{number:04}" for number in range(1_500)]
    world.checks = False
    world.tell(set_policy(remove_lost_ms=1_000))
    world.tell(*map(joined, names))
    world.tell(*(DeclareLost(cell=CELL, node=name) for name in names))
    world.now_ms += 1_000
    gone = effects_of_each(world, "NodeRemoved")
    assert sum(gone) == len(names)
    assert max(gone) <= STEPS_MAX // 100
    removed = [effect.node for effect in said(world) if isinstance(effect, e.NodeRemoved)]
    assert removed == names
    assert not world.state.nodes


def test_workers_of_a_large_job_that_are_late_at_one_time_are_given_up_over_several_decisions() -> None:
    workers, waves = 2_000, 150
    world = World()
    world.checks = False
    world.tell(set_policy(start_timeout_wall_ms=5_000, node_lease_wall_ms=10_000_000))
    world.tell(*(joined(f"n{number}") for number in range(270)))
    world.tell(admitted(service("job", workers, workers_min=1)))
    all_start(world, "job")
    for wave in range(1, waves + 1):
        world.tell(update("job", workers=workers + wave))
    world.wall_ms += 5_000
    late = effects_of_each(world, "AttemptTimedOut")
    assert sum(late) == waves
    assert max(late) <= STEPS_MAX // workers + 1


class Hasty(PlacementService):
    """A writer whose every turn has few steps left for what is due."""

    def _turn(self, now_ms: int) -> DecisionBuilder:
        turn = super()._turn(now_ms)
        turn.due_steps = STEPS_MAX - 25
        return turn


class HastyWorld(World):
    placement = Hasty


def said(world: World) -> Iterator[e.AnyEffect]:
    return (effect for decision in world.decisions for effect in decision.effects)


def due_of(world: World) -> list[tuple[str, Any]]:
    """What was done because it was due, in its order."""
    told = (e.AttemptTimedOut, e.JobStopping, e.JobResizing, e.NodeRemoved, e.JobCancelled)
    return [
        (
            type(effect).__name__,
            effect.node if isinstance(effect, e.NodeRemoved) else (effect.job, getattr(effect, "what", "")),
        )
        for effect in said(world)
        if isinstance(effect, told)
    ]


JOBS = st.lists(
    st.tuples(st.sampled_from((None, 1_000, 2_000, 7_000)), st.booleans(), st.integers(1, 3), st.booleans()),
    max_size=12,
)
STEPS = st.lists(st.sampled_from((500, 1_000, 3_000, 5_000, 45_000)), min_size=1, max_size=6)


class Fates:
    """What becomes of the next appends, the last of these first; those behind get into the log."""

    def __init__(self, fates: Iterable[Fate]) -> None:
        self.left = [*fates]

    def __call__(self) -> Fate:
        return self.left.pop() if self.left else Fate.KEPT


def lived(world: World, jobs: Any, steps: list[int], drained: list[int], fates: list[Fate]) -> World:
    """The same history for each world. Of its appends these come to a bad end, when all of it is due."""
    world.tell(set_policy(start_timeout_wall_ms=5_000, node_lease_wall_ms=10_000_000, remove_lost_ms=4_000))
    world.tell(*(joined(f"n{number}") for number in range(3)))
    for number, (limit_ms, is_up, workers, is_gang) in enumerate(jobs):
        make = spec_of if is_gang else service
        world.tell(admitted(make(f"job-{number}", workers=workers, max_run_ms=limit_ms)))
        if is_up and is_gang:
            world.tell(*(started(f"job-{number}", node) for node in dict.fromkeys(world.nodes_of(f"job-{number}"))))
    for number in drained:
        world.tell(Drain(cell=CELL, node=f"n{number}", deadline_ms=world.now_ms + 3_000))
    for step in steps:
        world.now_ms, world.wall_ms = world.now_ms + step, world.wall_ms + step
        world.on_append = Fates(fates)
        world.rest()
        world.on_append = Fates([])
    return world


@given(JOBS, STEPS, st.lists(st.integers(0, 2), max_size=2, unique=True))
def test_with_few_steps_a_turn_the_same_is_done_in_the_same_order(
    jobs: Any, steps: list[int], drained: list[int]
) -> None:
    at_once, hasty = lived(World(), jobs, steps, drained, []), lived(HastyWorld(), jobs, steps, drained, [])
    reaches("more is due than one turn has steps for", len(hasty.decisions) > len(at_once.decisions))
    assert due_of(hasty) == due_of(at_once)
    assert {job.id: job.status for job in hasty.state.jobs.values()} == {
        job.id: job.status for job in at_once.state.jobs.values()
    }


@given(JOBS, STEPS, st.lists(st.sampled_from((Fate.LOST, Fate.LATE)), max_size=3))
def test_nothing_of_it_is_lost_where_appends_fail(jobs: Any, steps: list[int], fates: list[Fate]) -> None:
    at_once, hasty = lived(World(), jobs, steps, [], []), lived(HastyWorld(), jobs, steps, [], fates)
    reaches("an append fails when something is due", fates and due_of(at_once))
    assert sorted(due_of(hasty)) == sorted(due_of(at_once))


@pytest.mark.parametrize("jobs", [1, 40])
def test_all_that_is_due_is_done_before_the_cell_rests(jobs: int) -> None:
    world = HastyWorld()
    world.tell(*(joined(f"n{number}") for number in range(5)))
    world.run(*(spec_of(f"job-{number}", max_run_ms=1_000) for number in range(jobs)))
    known = len(world.decisions)
    world.now_ms += 1_000
    world.rest()
    assert len([effect for effect in said(world) if isinstance(effect, e.JobStopping)]) == jobs
    assert len(world.decisions) - known >= jobs // 2


@pytest.mark.parametrize("fates", [[], [Fate.LOST], [Fate.LATE]])
def test_starts_that_are_late_are_given_up_in_the_order_in_which_they_were_due_also_where_an_append_fails(
    fates: list[Fate],
) -> None:
    world = World()
    world.tell(set_policy(start_timeout_wall_ms=5_000, node_lease_wall_ms=10_000_000))
    world.tell(*(joined(f"n{number}") for number in range(3)))
    for number in (2, 0, 1):
        world.wall_ms += 100
        world.tell(admitted(spec_of(f"job-{number}", 8)))
    world.on_append = Fates(fates)
    world.wall_ms += 5_000
    world.rest()
    told = [effect.job for effect in said(world) if isinstance(effect, e.AttemptTimedOut)]
    assert told == ["job-2", "job-0", "job-1"]


def test_what_is_put_back_is_done_in_its_order_later() -> None:
    world = World()
    world.tell(set_policy(start_timeout_wall_ms=5_000, node_lease_wall_ms=10_000_000))
    world.tell(*(joined(f"n{number}") for number in range(4)))
    for number in range(4):
        world.wall_ms += 100
        world.tell(admitted(spec_of(f"job-{number}", 8)))
    deadlines, done = world.service._deadlines, list[list[str]]()
    for heard_ms in (world.wall_ms + 4_900, world.wall_ms + 5_000):
        world.writer.begin()
        turn = DecisionBuilder(world.state, world.now_ms)
        deadlines.begin()
        deadlines.act(turn, heard_ms)
        done.append([effect.job for effect in turn.effects if isinstance(effect, e.AttemptTimedOut)])
        deadlines.put_back()
        world.writer.abandon()
    assert done == [["job-0", "job-1", "job-2"], ["job-0", "job-1", "job-2", "job-3"]]
