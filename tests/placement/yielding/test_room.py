"""Room that is held for a waiting job: nobody else gets it, its job does, and it always ends."""

from __future__ import annotations

from typing import Any

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import RunStatus
from fallow.shared.events.operations import Cordon, HoldJob
from fallow.shared.events.reasons import ClearReason, PendingReason, RequeueReason, StopReason
from tests.placement.worlds.world import (
    CELL,
    World,
    admitted,
    cancel,
    finished,
    joined,
    kinds,
    lost,
    quota,
    set_quotas,
    spec_of,
    stopped,
)
from tests.placement.yielding.proposals import place, proposal, refusal, yielding_cell

EIGHT = tuple(range(8))


def making_room(**policy: Any) -> World:
    """Job `low` yields n1, of 8 GPUs, to `high`."""
    world = yielding_cell(8, **policy)
    world.run(spec_of("low", 8))
    world.tell(admitted(spec_of("high", 4, priority=5), 1))
    effects = world.tell(proposal(world, "high", ["low"], [place(0, "n1", 0, 1, 2, 3)]))
    assert refusal(effects) is None
    return world


def test_a_victim_is_told_to_stop_with_a_grace_and_the_room_is_held_in_the_same_record() -> None:
    world = making_room(preempt_grace_wall_ms=7_000)
    (decision,) = [each for each in world.decisions if any(type(x) is e.RoomHeld for x in each.effects)]
    assert kinds(decision.effects) == ["JobStopping", "RoomHeld", "JobDeferred"]
    stop, room, _ = decision.effects
    assert isinstance(stop, e.JobStopping)
    assert isinstance(room, e.RoomHeld)
    assert (stop.job, stop.why, stop.for_whom, stop.grace_wall_ms) == ("low", StopReason.PRIORITY, "high", 7_000)
    assert (room.job, room.victims, room.proposal, room.until_ms) == ("high", 1, "p-1", 600_000)
    assert world.job("high").deferred is PendingReason.MAKING_ROOM


def test_the_job_starts_in_its_room_in_the_decision_that_sees_the_last_confirmation() -> None:
    world = making_room()
    world.tell(stopped("low"))
    decision = world.decisions[-1]
    assert kinds(decision.effects)[:4] == ["JobPreempted", "JobRequeued", "RoomReleased", "JobStarted"]
    assert world.nodes_of("high") == ["n1"]
    assert world.job("high").workers[0].devices == (0, 1, 2, 3)
    low = world.job("low")
    assert (low.status, low.submit_ms, low.preemptions, low.yielded_to) == (JobStatus.QUEUED, 0, 1, ("high",))
    requeued = next(each for each in decision.effects if isinstance(each, e.JobRequeued))
    assert requeued.reason is RequeueReason.PREEMPTED
    assert not world.state.rooms


def test_no_other_job_gets_room_that_is_held_and_all_others_go_on() -> None:
    """Of n2, which is free, two GPUs are held beside what `low` yields."""
    world = yielding_cell(8, 4)
    world.run(spec_of("low", 8))
    world.tell(admitted(spec_of("high", 4, workers=2, priority=5), 1))
    assert world.nodes_of("high") == []
    places = [place(0, "n1", 0, 1, 2, 3), place(1, "n2", 0, 1, 2, 3)]
    assert refusal(world.tell(proposal(world, "high", ["low"], places))) is None
    world.tell(joined("n3", 4), admitted(spec_of("early", 4, priority=9), 2), admitted(spec_of("late", 4), 3))
    assert world.nodes_of("early") == ["n3"]
    assert world.nodes_of("late") == []
    world.tell(stopped("low"))
    assert world.nodes_of("high") == ["n1", "n2"]
    assert world.nodes_of("low") == []
    assert world.nodes_of("late") == ["n1"]


def test_what_was_promised_counts_with_the_quota_of_its_tenant() -> None:
    world = yielding_cell(8, 4)
    world.tell(set_quotas(quota("ada", 8)))
    world.run(spec_of("low", 8, tenant="bob"))
    world.tell(admitted(spec_of("high", 6, priority=5), 1))
    assert refusal(world.tell(proposal(world, "high", ["low"], [place(0, "n1", 0, 1, 2, 3, 4, 5)]))) is None
    assert world.state.usage["ada", "gpu"] == 6_000
    world.tell(admitted(spec_of("other", 4), 2))
    assert (world.nodes_of("other"), world.job("other").deferred) == ([], PendingReason.QUOTA_REACHED)
    world.tell(stopped("low"))
    assert (world.nodes_of("high"), world.state.usage["ada", "gpu"]) == (["n1"], 6_000)


ENDS = {
    "its job is cancelled": (cancel("high"), None),
    "its job is held": (HoldJob(cell=CELL, job="high"), ClearReason.HELD),
    "its node is lost": (lost(), ClearReason.NODES_GONE),
    "its node is closed": (Cordon(cell=CELL, node="n1"), ClearReason.NODES_GONE),
}


@pytest.mark.parametrize("case", ENDS)
def test_room_is_let_go_of_where(case: str) -> None:
    world = making_room()
    told, reason = ENDS[case]
    effects = world.tell(told)
    assert not world.state.rooms
    released = [each.reason for each in effects if isinstance(each, e.RoomReleased)]
    assert released == ([] if reason is None else [reason])
    assert world.state.nodes["n1"].room == 0


def test_room_lapses_whatever_a_victims_node_does_not_say() -> None:
    world = making_room(hold_lapse_ms=50_000)
    world.listens = False
    effects = world.pass_time(50_000)
    assert [each.reason for each in effects if isinstance(each, e.RoomReleased)] == [ClearReason.LAPSED]
    assert world.job("high").deferred is PendingReason.NO_FREE_GPUS
    world.tell(stopped("low"))
    assert world.nodes_of("high") == ["n1"]


def test_another_writer_goes_on_with_room_that_is_held() -> None:
    world = making_room(hold_lapse_ms=50_000)
    world.restart()
    assert set(world.state.rooms) == {"high"}
    world.tell(stopped("low"))
    assert world.nodes_of("high") == ["n1"]


def test_a_victim_that_ends_by_itself_gives_its_room_to_the_job_that_waits_for_it() -> None:
    world = making_room()
    world.tell(finished("low"))
    assert world.nodes_of("high") == ["n1"]
    assert RunStatus.STARTING in world.job("high").runs.values()


def test_a_node_that_comes_with_other_hardware_is_that_when_nothing_is_held_there() -> None:
    world = making_room()
    world.tell(joined("n1", 4))
    assert world.state.nodes["n1"].offered is not None
    assert not world.state.rooms
    world.tell(stopped("low"))
    assert world.state.nodes["n1"].spec.gpus == 4


def elements_wait(running_max: int) -> World:
    """Two jobs run, and of three elements of higher priority so many may run at once."""
    world = yielding_cell(8, 8)
    world.run(spec_of("low-1", 8), spec_of("low-2", 8))
    world.tell(admitted(spec_of("arr", 8, priority=5, array=3, array_max_running=running_max), 1))
    assert (
        refusal(world.tell(proposal(world, "arr.0", ["low-1"], [place(0, world.nodes_of("low-1")[0], *EIGHT)]))) is None
    )
    return world


def test_an_element_for_which_room_is_held_counts_with_the_limit_of_its_array() -> None:
    world = elements_wait(1)
    second = proposal(world, "arr.1", ["low-2"], [place(0, world.nodes_of("low-2")[0], *EIGHT)], name="p-2")
    code, text = refusal(world.tell(second)) or ("", "")
    assert (code, text.split(":")[0]) == ("does_not_help", "job arr.1 waits for its array")
    world.tell(joined("n3", 8))
    assert [world.nodes_of(f"arr.{number}") for number in range(3)] == [[], [], []]
    assert world.job("arr.1").deferred is PendingReason.ARRAY_LIMIT
    world.tell(stopped("low-1", world.nodes_of("low-1")[0]))
    assert [bool(world.nodes_of(f"arr.{number}")) for number in range(3)] == [True, False, False]


def test_the_end_of_an_elements_room_lets_another_element_start() -> None:
    world = elements_wait(1)
    world.tell(cancel("arr.0"), joined("n3", 8))
    assert [bool(world.nodes_of(f"arr.{number}")) for number in (1, 2)] == [True, False]
    assert world.state.arrays["arr"].starts_left == 0


def test_within_the_limit_room_is_held_for_several_elements() -> None:
    world = elements_wait(2)
    second = proposal(world, "arr.1", ["low-2"], [place(0, world.nodes_of("low-2")[0], *EIGHT)], name="p-2")
    assert refusal(world.tell(second)) is None
    assert list(world.state.rooms) == ["arr.0", "arr.1"]
