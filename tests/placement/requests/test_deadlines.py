"""Limits by cell time and waits by wall time: they need no event to happen, and outlive the writer."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.runs.deadlines import UNREAD_MS
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events import effects as e
from fallow.shared.events.fields.value import replace
from fallow.shared.events.fields.values import Dependency, RetryPolicy
from fallow.shared.events.operations import AdvanceTime
from fallow.shared.events.reasons import ProposalCode, StopReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    admitted,
    cancel,
    cell_with,
    codes,
    finished,
    joined,
    kinds,
    report,
    seen,
    set_policy,
    spec_of,
    started,
    stopped,
    update,
)


def limited(max_run_ms: int = 1_000) -> World:
    world = cell_with(joined("n1"))
    world.run(spec_of("job", max_run_ms=max_run_ms))
    return world


def timeouts(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.what for effect in effects if isinstance(effect, e.AttemptTimedOut)]


def timed_out(effects: list[e.AnyEffect]) -> list[str]:
    """The jobs that did not start in time."""
    return [effect.job for effect in effects if isinstance(effect, e.AttemptTimedOut) and effect.what == "start"]


def test_a_job_that_runs_too_long_is_stopped_and_fails() -> None:
    world = limited()
    assert world.service.next_cell_ms() == 1_000
    assert world.pass_time(999) == []
    assert kinds(world.pass_time(1)) == ["AttemptTimedOut", "JobStopping"]
    assert kinds(world.tell(stopped("job"))) == ["JobFailed"]


def test_a_job_that_finishes_in_the_very_moment_of_its_limit_has_finished() -> None:
    world = limited()
    world.now_ms = 1_000
    assert kinds(world.tell(finished("job"))) == ["JobFinished"]


def test_a_raised_limit_holds_and_a_lowered_one_too() -> None:
    world = limited()
    world.tell(update("job", max_run_ms=3_000))
    assert world.pass_time(2_999) == []
    world.tell(update("job", max_run_ms=10))
    assert world.service.next_cell_ms() == 10
    assert timeouts(world.rest()) == ["run"]


def test_a_limit_is_of_each_attempt() -> None:
    world = limited()
    world.pass_time(600)
    world.tell(stopped("job"))
    assert world.pass_time(999) == []
    assert timeouts(world.pass_time(1)) == ["run"]


def test_a_limit_outlives_the_writer() -> None:
    world = limited()
    world.pass_time(400)
    world.restart()
    assert world.pass_time(599) == []
    assert timeouts(world.pass_time(1)) == ["run"]


def test_a_gang_that_does_not_come_up_is_stopped_and_tried_again_later() -> None:
    world = cell_with(joined("n1"), joined("n2"))
    world.tell(set_policy(start_timeout_wall_ms=5_000))
    world.tell(admitted(spec_of("gang", 8, workers=2)))
    world.tell(started("gang", "n1"))
    assert timeouts(world.pass_time(4_999)) == []
    assert timeouts(world.pass_time(1)) == ["start"]
    assert world.job("gang").stop_why is StopReason.START_TIMED_OUT
    world.tell(stopped("gang", "n1"), stopped("gang", "n2"))
    assert (world.job("gang").status, world.job("gang").failures) == (JobStatus.QUEUED, 0)
    assert world.job("gang").not_before_ms == world.now_ms + 10_000


def test_each_start_is_waited_for_as_long_as_the_policy_said_when_it_began() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(start_timeout_wall_ms=12_000))
    world.tell(admitted(spec_of("patient")))
    world.tell(set_policy(start_timeout_wall_ms=2_000))
    world.tell(admitted(spec_of("hasty")))
    assert world.pass_time(1_999) == []
    assert timed_out(world.pass_time(1)) == ["hasty"]
    assert timed_out(world.pass_time(9_999)) == []
    assert timed_out(world.pass_time(1)) == ["patient"]


def test_a_gang_that_comes_up_in_the_very_moment_of_its_limit_runs_on() -> None:
    world = cell_with(joined("n1"))
    world.tell(admitted(spec_of("job")))
    world.wall_ms += world.state.policy.start_timeout_wall_ms
    assert kinds(world.tell(started("job"))) == ["JobRunning"]
    assert world.pass_time(10_000) == []


def test_a_start_that_was_answered_is_waited_for_no_more() -> None:
    world = limited(max_run_ms=10_000_000)
    world.tell(report("n1"))
    assert timeouts(world.pass_time(300_000)) == []


def test_a_stop_without_an_answer_is_told_and_its_places_stay_held() -> None:
    world = limited()
    world.pass_time(1_000)
    world.tell(report("n1"))
    assert timeouts(world.pass_time(30_000 + 10_000 - 1)) == []
    assert timeouts(world.pass_time(1)) == ["stop"]
    assert world.state.nodes["n1"].gpus_free == 7


def test_a_new_writer_waits_anew_for_answers() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(start_timeout_wall_ms=5_000, node_lease_wall_ms=1_000_000))
    world.tell(admitted(spec_of("job")))
    world.pass_time(4_000)
    world.restart()
    assert timeouts(world.pass_time(4_999)) == []
    assert timeouts(world.pass_time(1)) == ["start"]


def test_a_stepped_clock_goes_by_what_it_is_told() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.run(spec_of("job", max_run_ms=1_000))
    world.now_ms = 50_000
    assert world.rest() == []
    assert timeouts(world.tell(AdvanceTime(cell=CELL, now_ms=1_000))) == ["run"]


def test_a_stepped_clock_never_goes_back() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.tell(AdvanceTime(cell=CELL, now_ms=1_000))
    world.tell(AdvanceTime(cell=CELL, now_ms=500), admitted(spec_of("job"), submit_ms=700))
    assert world.job("job").started_ms == 1_000


def test_a_cell_by_the_wall_clock_refuses_to_be_stepped() -> None:
    assert codes(cell_with().tell(AdvanceTime(cell=CELL, now_ms=5))) == [ProposalCode.NOT_ALLOWED]


def test_each_record_has_one_time_also_when_the_clock_steps_within_a_batch() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.run(spec_of("a"), spec_of("b"))
    early = replace(finished("a"), at_ms=100)
    late = replace(finished("b"), at_ms=200)
    world.tell(early, AdvanceTime(cell=CELL, now_ms=150), late)
    assert [over.over_ms for over in world.state.finished.values()] == [100, 200]


def test_a_cancel_and_a_step_of_the_clock_in_one_batch_fold_alike() -> None:
    world = cell_with(joined("n1"), stepped=True)
    world.tell(admitted(spec_of("a", 9)))
    world.tell(cancel("a"), AdvanceTime(cell=CELL, now_ms=200))
    assert world.state.finished["a"].over_ms == 0


def unanswered() -> World:
    """A gang that no node confirms, and a job that waits for one which never comes."""
    world = cell_with(joined("n1"))
    world.tell(set_policy(start_timeout_wall_ms=60_000, unknown_dependency_ms=60_000, node_lease_wall_ms=1_000_000))
    waits = (Dependency(job="never"),)
    world.tell(admitted(spec_of("job", retry=RetryPolicy(budget=0))), admitted(spec_of("waits", after=waits)))
    return world


def lose_the_next_answer(world: World) -> None:
    fates = [Fate.KEPT, Fate.LATE]
    world.on_append = lambda: fates.pop() if fates else Fate.KEPT
    world.tell(cancel("unknown"))
    world.on_append = lambda: Fate.KEPT


DISTURBANCES: dict[str, Callable[[World], None]] = {
    "regained": World.regain,
    "taken over": World.restart,
    "a lost answer": lose_the_next_answer,
}


@given(
    every_s=st.integers(6, 70),
    disturbances=st.lists(st.sampled_from(sorted(DISTURBANCES)), min_size=1, max_size=6),
)
def test_waits_end_however_often_a_cell_is_taken_over_or_an_answer_is_lost(
    every_s: int, disturbances: list[str]
) -> None:
    world = unanswered()
    reaches("answers are lost while jobs wait", "a lost answer" in disturbances and every_s < 60)
    ends: list[e.AnyEffect] = []
    for second in range(1, 60 + 2 * every_s + 1):
        world.tell(report("n1"))
        ends += world.pass_time(1_000)
        if second % every_s == 0:
            DISTURBANCES[disturbances[second // every_s % len(disturbances)]](world)
    effects = [effect for decision in world.decisions for effect in decision.effects]
    assert "start" in timeouts(effects)
    assert "waits" in world.state.finished


def test_the_process_that_has_begun_a_wait_ends_it_at_its_time_whatever_comes_between() -> None:
    world = unanswered()
    for _ in range(5):
        world.pass_time(10_000)
        world.regain()
        lose_the_next_answer(world)
    assert timeouts(world.pass_time(9_999)) == []
    assert timeouts(world.pass_time(1)) == ["start"]


def test_a_stop_without_an_answer_is_told_though_its_writer_regains_the_cell_again_and_again() -> None:
    world = unanswered()
    world.tell(set_policy(stop_grace_wall_ms=20_000, lease_margin_wall_ms=10_000))
    world.tell(cancel("job"))
    for _ in range(2):
        world.pass_time(10_000)
        world.regain()
    assert timeouts(world.pass_time(9_999)) == []
    assert timeouts(world.pass_time(1)) == ["stop"]


def test_an_unknown_job_is_not_waited_for_anew_each_time_that_the_writer_regains_its_cell() -> None:
    world = cell_with(joined("n1"))
    world.tell(set_policy(unknown_dependency_ms=20_000))
    world.tell(admitted(spec_of("job", after=(Dependency(job="nowhere"),))))
    for _ in range(15):
        world.pass_time(UNREAD_MS // 3)
        world.regain()
    assert world.state.finished["job"].status is JobStatus.CANCELLED


def test_no_start_is_late_before_all_is_read_that_nodes_had_said() -> None:
    world = unanswered()
    world.pass_time(59_000)
    world.restart()
    world.pass_time(1_000)
    world.unread_nodes = 1
    world.restart()
    assert timeouts(world.pass_time(100_000)) == []
    world.unread_nodes = 0
    assert timeouts(world.tell(report("n1"))) == ["start"]


def test_no_start_is_late_while_reports_of_nodes_lie_unread_though_others_were_read_before() -> None:
    world = unanswered()
    world.pass_time(59_000)
    world.unread_nodes = 1
    assert timeouts(world.pass_time(200_000)) == []
    world.unread_nodes = 0
    assert timeouts(world.tell(report("n1"))) == ["start"]


@given(every_s=st.integers(2, 39), disturbance=st.sampled_from(sorted(DISTURBANCES)))
def test_a_stop_that_is_not_confirmed_is_told_once_at_its_time_whoever_writes(every_s: int, disturbance: str) -> None:
    world, is_told, disturbed = limited(), False, 0
    world.pass_time(1_000)
    for second in range(1, 100):
        world.tell(report("n1", seen("job")))
        is_told |= "stop" in timeouts(world.pass_time(1_000))
        if second % every_s == 0:
            disturbed += not is_told
            DISTURBANCES[disturbance](world)
    reaches("a wait for a stop is disturbed more than once", disturbed > 1)
    effects = [effect for decision in world.decisions for effect in decision.effects]
    assert timeouts(effects).count("stop") == 1
    assert world.state.nodes["n1"].gpus_free == 7


def test_another_writer_goes_on_waiting_for_a_stop_where_the_one_before_it_was() -> None:
    world = limited()
    world.pass_time(1_000)
    for _ in range(7):
        world.tell(report("n1", seen("job")))
        assert timeouts(world.pass_time(5_000)) == []
        world.restart()
    # What is over since the last decision of the writer before it no writer knows.
    assert timeouts(world.pass_time(10_000)) == ["stop"]
