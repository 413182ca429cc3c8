"""What stands before a due head in the line of its tenant is looked at once in a walk, and again where it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fallow.services.placement.queue.due_heads import InOrder, OwnBefore, due_heads
from fallow.services.placement.queue.heads import Heads
from fallow.services.placement.queue.lines.course import Course
from fallow.services.placement.queue.lines.lines import Lines
from fallow.shared.cluster.model.queue_order import Order
from fallow.shared.events.reasons import PendingReason
from tests.placement.heads.test_heads import submit, world_of
from tests.placement.heads.test_own_jobs_before_due_heads import FAIR
from tests.placement.worlds.world import World, joined

PLACES: list[Order] = [(0, 0, number, f"job-{number}") for number in range(5)]


def looked_at(reaches: Sequence[int]) -> tuple[InOrder, list[int]]:
    """Jobs that stand at the first places and could use these nodes of one pool; and those that were looked at."""
    looks: list[int] = []

    def reach_at(at: int) -> dict[str, int]:
        looks.append(at)
        return {"train": reaches[at]} if reaches[at] else {}

    return InOrder(PLACES[: len(reaches)], reach_at), looks


@pytest.mark.parametrize(("kept", "first"), [(0b001, 0), (0b010, 1), (0b110, 1), (0b100, 3), (0b1000, None)])
def test_the_first_that_could_use_what_is_kept_is_found_also_where_more_were_looked_at_before(
    kept: int, first: int | None
) -> None:
    jobs, looks = looked_at([0b001, 0b011, 0, 0b100])
    assert jobs.first_for(PLACES[4], {"train": 0b1000}) is None
    assert jobs.first_for(PLACES[4], {"train": kept}) == first
    assert looks == [0, 1, 2, 3]


def test_what_was_looked_at_for_a_later_head_does_not_stand_before_an_earlier_one() -> None:
    jobs, _ = looked_at([0b001, 0b010, 0b100])
    assert jobs.first_for(PLACES[3], {"train": 0b100}) == 2
    assert jobs.first_for(PLACES[2], {"train": 0b100}) is None
    assert jobs.first_for(PLACES[2], {"train": 0b010}) == 1


def test_no_more_are_looked_at_than_up_to_the_first_that_could_use_it() -> None:
    jobs, looks = looked_at([0b001, 0b010, 0b100])
    assert jobs.first_for(PLACES[3], {"train": 0b010}) == 1
    assert looks == [0, 1]


def with_a_due_head(beside: str, **spec: Any) -> tuple[World, Lines]:
    """Bob's head waits for two nodes that eve's job holds, and another one of bob's for one of them."""
    world = world_of(FAIR, wait_ms=10_000)
    world.tell(joined("n1", 4), joined("n2", 4))
    submit(world, "fill", 4, 2, tenant="eve")
    submit(world, "head", 4, 2, tenant="bob")
    submit(world, beside, 4, tenant="bob", **spec)
    world.pass_time(20_000)
    lines = Lines([FAIR])
    lines.follow(world.state, (), world.now_ms)
    return world, lines


@pytest.mark.parametrize("change", ["nothing", "it started", "its array is full"])
def test_a_job_before_a_due_head_counts_no_more_once_the_walk_has_started_it_or_taken_it_off_its_way(
    change: str,
) -> None:
    world, lines = with_a_due_head("before", priority=1)
    state = world.state
    ((line,),) = lines.in_order()
    heads = Heads(state, world.now_ms)
    own = OwnBefore(state, lines, heads, [Course(line, lambda *_: False)])
    due = due_heads(state, lines, FAIR, world.now_ms)
    own.look_for(due)
    job, line, row = next(each for each in due if each[0].spec.id == "head")
    room = heads.room_before_turns(job, row.rows.need)
    assert own.has_one_for(job, line, row, PendingReason.NO_FREE_GPUS, room)
    assert not own.has_one_for(job, line, row, PendingReason.NO_FREE_GPUS, {})
    place = lines.place_of("before")
    assert place is not None
    if change == "it started":
        lines.started(place[1])
    elif change == "its array is full":
        lines.refuse(*place, PendingReason.ARRAY_LIMIT, is_shut=True)
    assert own.has_one_for(job, line, row, PendingReason.NO_FREE_GPUS, room) is (change == "nothing")


def test_a_due_head_keeps_its_own_tenants_jobs_off_before_its_turn_until_that_has_come() -> None:
    """Then it does as any head does: who stands behind it has not come to wait by that."""
    world, lines = with_a_due_head("behind")
    heads, jobs = Heads(world.state, world.now_ms), world.state.jobs
    places = {name: lines.place_of(name) for name in ("head", "behind")}
    needs = {name: place[1].rows.need for name, place in places.items() if place is not None}
    heads.add_before_turns(jobs["head"], needs["head"], PendingReason.NO_FREE_GPUS)
    before = heads.over(needs["behind"], jobs["behind"].spec)
    assert before is not None
    assert before.is_before_turns
    heads.add(jobs["head"], needs["head"], PendingReason.NO_FREE_GPUS, FAIR.discipline, ["head"])
    then = heads.over(needs["behind"], jobs["behind"].spec)
    assert then is not None
    assert (then.spec.id, then.is_due, then.is_before_turns) == ("head", True, False)
