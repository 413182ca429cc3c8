"""An input that was read on behind a loss counts as read to the loss alone, until a person decides where it goes on."""

from __future__ import annotations

from fallow.shared.cluster.model.job import JobStatus
from tests.placement.worlds.world import World, admitted, spec_of

JOBS = "jobs-0"


def taken_back(world: World) -> World:
    """A world whose jobs are taken back to their beginning, once one was read and while two more wait to be."""
    world.tell(admitted(spec_of("first")))
    world.hand_over(admitted(spec_of("second")), admitted(spec_of("third")))
    world.writer.begin()
    assert world._append(world.service.fence({JOBS: (0, None)}, world.now_ms, world.wall_ms))
    return world


def test_what_was_read_behind_a_loss_is_decided_upon_and_does_not_count_as_read() -> None:
    world = taken_back(World())
    world.rest()
    assert [world.job(job).status for job in ("first", "second", "third")] == [JobStatus.QUEUED] * 3
    world.leave()
    assert world.state.inputs[JOBS] == 0


def test_nor_does_what_the_reader_has_passed_over_there() -> None:
    """Ends of transactions take offsets and are no records."""
    world = World()
    world.service.inputs_read({JOBS: 9})
    world.leave()
    assert world.state.inputs[JOBS] == 9
    world.writer.begin()
    assert world._append(world.service.fence({JOBS: (0, None)}, world.now_ms, world.wall_ms))
    world.service.inputs_read({JOBS: 9})
    world.leave()
    assert world.state.inputs[JOBS] == 0


def test_from_where_a_person_has_it_go_on_it_counts_again() -> None:
    world = taken_back(World())
    world.rest()
    world.writer.begin()
    assert world._append(world.service.resume({JOBS: 3}, world.now_ms, world.wall_ms))
    world.tell(admitted(spec_of("fourth")))
    assert world.state.inputs[JOBS] == 4
