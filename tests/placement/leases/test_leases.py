"""Silence: one silent node is lost, many silent nodes are our own trouble."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.placement.lifecycle.nodes.earlier_reports import EarlierReports
from fallow.services.placement.lifecycle.nodes.leases import Leases, pause_ms
from fallow.services.placement.lifecycle.nodes.listening import Listening
from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.cluster.model.lease import patience_ms
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.fields.values import NodeStatus
from fallow.shared.events.operations import Cordon
from fallow.shared.events.reasons import PendingReason
from tests.hypothesis_profile import reaches
from tests.placement.worlds.world import (
    CELL,
    Fate,
    World,
    admitted,
    cell_with,
    finished,
    is_ready,
    joined,
    kinds,
    lost,
    report,
    spec_of,
)

SILENCE_MS = 40_001


def cell_of(count: int) -> World:
    return cell_with(*(joined(f"n{number:02}") for number in range(count)))


def silence(world: World, *heard: str, ms: int = SILENCE_MS) -> list[str]:
    """All but these nodes are silent for so long. The nodes that are lost."""
    made: list[str] = []
    for step in (ms // 4, ms // 4, ms // 4, ms - ms // 4 * 3):
        made += lost_in(world.tell(*(report(node) for node in heard)))
        made += lost_in(world.pass_time(step))
    return [*made, *lost_in(world.tell(*(report(node) for node in heard)))]


def lost_in(effects: list[e.AnyEffect]) -> list[str]:
    return [effect.node for effect in effects if isinstance(effect, e.LeaseExpired)]


def pass_seconds(world: World, seconds: int, *speaking: str) -> list[str]:
    """Time passes while these nodes report. The nodes that are lost."""
    made: list[str] = []
    for _ in range(seconds):
        world.hand_over(*(report(node) for node in speaking))
        made += lost_in(world.pass_time(1_000))
    return made


def test_a_node_that_is_silent_beyond_lease_and_margin_is_lost() -> None:
    world = cell_of(1)
    assert lost_in(world.pass_time(SILENCE_MS - 1)) == []
    assert lost_in(world.pass_time(1)) == ["n00"]


def test_a_node_that_speaks_lives() -> None:
    world = cell_of(1)
    assert silence(world, "n00") + silence(world, "n00") == []


def test_what_an_operator_does_with_a_node_renews_no_lease() -> None:
    world = cell_of(1)
    world.pass_time(SILENCE_MS - 1)
    world.tell(Cordon(cell=CELL, node="n00"))
    assert lost_in(world.pass_time(1)) == ["n00"]


def test_two_silent_nodes_of_ten_are_lost() -> None:
    world = cell_of(10)
    assert silence(world, *(f"n{number:02}" for number in range(2, 10))) == ["n00", "n01"]


def test_three_silent_nodes_of_ten_are_none() -> None:
    world = cell_of(10)
    assert silence(world, *(f"n{number:02}" for number in range(3, 10))) == []
    assert world.service.leases_frozen


def test_the_breaker_holds_the_rest_when_some_nodes_speak_again_until_all_do() -> None:
    world = cell_of(10)
    speaking = [f"n{number:02}" for number in range(3, 10)]
    silence(world, *speaking)
    assert silence(world, "n02", *speaking) == []
    assert world.service.leases_frozen
    world.tell(*(report(f"n{number:02}") for number in range(2)))
    assert not world.service.leases_frozen


def test_lost_nodes_count_neither_as_silent_nor_as_living() -> None:
    world = cell_of(10)
    world.tell(*(lost(f"n{number:02}") for number in range(5)))
    assert silence(world, *(f"n{number:02}" for number in range(6, 10))) == ["n05"]


def test_time_in_which_the_writer_was_away_counts_for_no_node() -> None:
    world = cell_of(1)
    world.wall_ms += 10 * SILENCE_MS
    assert world.rest() == []
    assert lost_in(world.pass_time(SILENCE_MS - 1)) == []
    assert lost_in(world.pass_time(1)) == ["n00"]


def test_a_writer_that_takes_over_gives_a_new_lease_to_every_node_that_spoke() -> None:
    world = cell_of(2)
    world.pass_time(14_000)
    world.restart()
    assert lost_in(world.pass_time(SILENCE_MS - 1)) == []
    assert lost_in(world.pass_time(1)) == ["n00", "n01"]


def test_a_lost_node_comes_back_and_has_a_lease_again() -> None:
    world = cell_of(1)
    world.pass_time(SILENCE_MS)
    world.tell(report("n00"))
    assert is_ready(world, "n00")
    assert lost_in(world.pass_time(SILENCE_MS)) == ["n00"]


def test_a_node_whose_join_got_into_the_log_without_an_answer_has_a_lease() -> None:
    world = cell_of(0)
    fates = iter([Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(joined("n00"))
    assert lost_in(world.pass_time(SILENCE_MS)) == ["n00"]


# Silence in the log.


def test_a_node_that_says_nothing_for_half_of_its_lease_gets_no_new_work_until_it_speaks() -> None:
    world = cell_of(1)
    assert kinds(world.pass_time(15_000)) == []
    assert kinds(world.pass_time(1)) == ["NodeSilent"]
    world.tell(admitted(spec_of("job")))
    assert (world.job("job").status, world.job("job").deferred) == (JobStatus.QUEUED, PendingReason.NODES_SILENT)
    assert kinds(world.tell(report("n00"))) == ["NodeHeard", "JobStarted"]


def test_what_runs_on_a_silent_node_goes_on() -> None:
    world = cell_of(1)
    world.run(spec_of("job"))
    world.pass_time(15_001)
    assert kinds(world.tell(finished("job", "n00"))) == ["NodeHeard", "JobFinished"]


def test_a_word_whose_decision_is_lost_still_ends_the_silence() -> None:
    world = cell_of(1)
    world.pass_time(15_001)
    fates = iter([Fate.LOST, Fate.LATE])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.tell(report("n00"))
    assert not world.state.nodes["n00"].silent_wall_ms
    world.check()


def test_silence_is_put_down_as_it_grows_and_not_in_each_cycle() -> None:
    world = cell_of(1)
    assert pass_seconds(world, 41) == ["n00"]
    effects = [effect for decision in world.decisions for effect in decision.effects]
    assert [x.silent_wall_ms for x in effects if isinstance(x, e.NodeSilent)] == [16_000, 24_000, 32_000, 40_000]


@pytest.mark.parametrize("stint_s", [16, 30])
def test_writers_that_take_turns_lose_a_silent_node_all_the_same(stint_s: int) -> None:
    """Each of them knows the log and nothing else."""
    world, lost_nodes = cell_of(2), list[str]()
    for _ in range(10):
        lost_nodes += pass_seconds(world, stint_s, "n01")
        world.restart()
    assert lost_nodes == ["n00"]
    assert is_ready(world, "n01")


@pytest.mark.parametrize("stint_s", [1, 10, 30])
def test_a_writer_that_regains_its_cell_keeps_its_clocks(stint_s: int) -> None:
    world, lost_nodes = cell_of(2), list[str]()
    for _ in range(60 // stint_s):
        lost_nodes += pass_seconds(world, stint_s, "n01")
        world.regain()
    assert lost_nodes == ["n00"]
    assert is_ready(world, "n01")


def test_a_writer_that_regains_its_cell_takes_in_again_what_came_to_nothing() -> None:
    world = cell_of(1)
    world.run(spec_of("job"))
    fates = iter([Fate.LOST])
    world.on_append = lambda: next(fates, Fate.KEPT)
    world.hand_over(finished("job", "n00"))
    world.decide()
    world.regain()
    assert "job" not in world.state.jobs


def test_a_silent_node_that_spoke_while_no_writer_listened_is_not_lost() -> None:
    world = cell_of(1)
    world.pass_time(38_000)
    world.hand_over(report("n00"))
    world.restart()
    assert lost_in(world.pass_time(SILENCE_MS - 1_000)) == []


def test_a_stepped_cell_expires_no_lease() -> None:
    world = cell_with(joined("n1"), stepped=True)
    assert world.pass_time(10 * SILENCE_MS) == []


def test_a_node_that_nobody_knows_is_never_lost() -> None:
    leases = Leases()
    leases.heard("stranger", 0)
    leases.asked(CellState("cell-a"), 0, SILENCE_MS)
    leases.took_in(0)
    assert leases.silent(CellState("cell-a")) == {}


def test_a_node_whose_words_lie_unread_in_the_log_is_not_lost() -> None:
    world = cell_of(1)
    world.unread_nodes = 1
    assert kinds(world.pass_time(3 * SILENCE_MS)) == ["NodeSilent"]
    assert world.service.nodes_unread_ms(world.wall_ms) == 3 * SILENCE_MS
    world.unread_nodes = 0
    assert kinds(world.tell(report("n00"))) == ["NodeHeard"]
    assert lost_in(world.pass_time(SILENCE_MS - 1)) == []
    assert lost_in(world.pass_time(1)) == ["n00"]


def test_a_lease_runs_out_as_of_the_moment_at_which_the_end_of_the_topic_was_asked_for() -> None:
    """The topic is read a minute late all the time: silence is seen a minute late, and no node dies of the lag."""
    leases, state = Leases(), cell_of(1).state
    leases.begin(state, 0)
    for second in range(200):
        leases.asked(state, second, second * 1_000)
        leases.took_in(second - 60)
        silent_ms = leases.silent(state).get("n00", 0)
        assert (silent_ms > patience_ms(state.policy)) == (second - 60 > SILENCE_MS // 1_000), second


def test_an_end_that_is_never_reached_forgets_no_older_one() -> None:
    listening = Listening()
    for second in range(5_000):
        listening.asked(second, second, 10)
    for reached in (0, 10, 4_000, 4_999):
        listening.took_in(reached)
        assert listening.as_of_ms is not None
        assert 0 <= reached - listening.as_of_ms <= 50


@pytest.mark.parametrize("every_s", [4, 5, 10, 14, 20])
def test_a_silent_node_is_lost_however_often_writers_leave_in_order_and_no_other_one_is(every_s: int) -> None:
    world = cell_of(6)
    living = [f"n{number:02}" for number in range(5)]
    for second in range(1, 100):
        pass_seconds(world, 1, *(living if second % 6 == 0 else []))
        if second % every_s == 0:
            world.leave()
            world.restart()
    assert world.state.nodes["n05"].status is NodeStatus.LOST
    assert all(world.state.nodes[node].status is NodeStatus.READY for node in living)


def test_a_writer_that_leaves_says_nothing_of_nodes_that_it_has_heard() -> None:
    world = cell_of(2)
    pass_seconds(world, 60, "n00", "n01")
    world.pass_time(6_000)
    before = len(world.log)
    world.leave()
    effects = [effect for decision in world.decisions[before:] for effect in decision.effects]
    assert effects == []
    assert world.state.inputs["nodes-0"] == len(world.inputs["nodes-0"])


def silence_told(gaps_ms: list[int], silent_ms: int, answered_at: int) -> dict[str, int]:
    """For how long a writer takes its node for silent that says nothing to it. It asks where topic `nodes` ends in such
    gaps, and is told at one of these times that the node had been silent for `silent_ms` when the writer began.
    """
    state, leases, asked_ms = cell_of(1).state, Leases(), 0
    earlier = EarlierReports(silent_ms)
    earlier.take(0, report("n00"))
    earlier.take(silent_ms, report("another"))
    leases.begin(state, 0)
    for number, gap_ms in enumerate([0, *gaps_ms]):
        asked_ms += gap_ms
        leases.asked(state, 0, asked_ms)
        leases.took_in(0)
        if number == min(answered_at, len(gaps_ms)):
            leases.learn(earlier, 0)
    return leases.unheard(state)


@given(st.lists(st.integers(1, 60_000), max_size=6), st.integers(1, 15_000), st.integers(0, 6))
def test_no_time_that_was_missed_counts_as_silence_whenever_a_writer_learns_what_was_said_before_it(
    gaps_ms: list[int], silent_ms: int, answered_at: int
) -> None:
    policy = cell_of(1).state.policy
    listened_ms = sum(gap_ms for gap_ms in gaps_ms if gap_ms <= pause_ms(policy))
    reaches("a writer listens at times, and misses others", 0 < listened_ms < sum(gaps_ms))
    told = silence_told(gaps_ms, silent_ms, answered_at)
    assert told == silence_told(gaps_ms, silent_ms, 0)
    assert set(told.values()) <= {listened_ms + silent_ms}


def test_nothing_is_started_while_reports_lie_unread_for_longer_than_a_lease() -> None:
    """What starts then is confirmed by no node, and would hold its places for ever."""
    world = cell_of(2)
    world.unread_nodes = 1
    lease_ms = world.state.policy.node_lease_wall_ms
    assert world.pass_time(lease_ms) == []
    assert kinds(world.pass_time(2_000)) == ["NodeSilent", "NodeSilent"]
    world.tell(admitted(spec_of("job")))
    assert (world.job("job").status, world.job("job").deferred) == (JobStatus.QUEUED, PendingReason.NODES_SILENT)
    assert world.pass_time(10 * SILENCE_MS) == []
    world.unread_nodes = 0
    assert kinds(world.tell(report("n00"), report("n01"))) == ["NodeHeard", "NodeHeard", "JobStarted"]


def test_a_topic_that_is_read_late_all_the_time_is_read() -> None:
    listening = Listening()
    for second in range(200):
        listening.asked(second, second * 1_000, 10_000)
        listening.took_in(second - 60)
        assert listening.stuck_ms() <= 61_000
    assert listening.stuck_ms() == 0


def test_a_log_that_is_away_makes_no_topic_stuck() -> None:
    listening = Listening()
    listening.asked(5, 1_000, 10_000)
    listening.took_in(5)
    listening.asked(7, 2_000, 10_000)
    assert listening.stuck_ms() == 1_000
