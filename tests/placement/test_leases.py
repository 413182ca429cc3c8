"""Silence: one silent node is lost, many silent nodes are our own trouble."""

from __future__ import annotations

from services.placement.policy.leases import Leases
from services.placement.policy.listening import Listening
from shared.cluster.state import CellState
from shared.events.operations import Cordon
from tests.placement.world import CELL, World, cell_with, is_ready, joined, kinds, lost, report

SILENCE_MS = 40_001


def cell_of(count: int) -> World:
    return cell_with(*(joined(f"n{number:02}") for number in range(count)))


def silence(world: World, *heard: str, ms: int = SILENCE_MS) -> list[str]:
    """All but these nodes are silent for so long. The effects that follow."""
    made: list[str] = []
    for step in (ms // 2, ms - ms // 2):
        made += kinds(world.tell(*(report(node) for node in heard)))
        made += kinds(world.pass_time(step))
    return [*made, *kinds(world.tell(*(report(node) for node in heard)))]


def test_a_node_that_is_silent_beyond_lease_and_margin_is_lost() -> None:
    world = cell_of(1)
    assert kinds(world.pass_time(SILENCE_MS - 1)) == []
    assert kinds(world.pass_time(1)) == ["LeaseExpired"]


def test_a_node_that_speaks_lives() -> None:
    world = cell_of(1)
    assert silence(world, "n00") + silence(world, "n00") == []


def test_what_an_operator_does_with_a_node_renews_no_lease() -> None:
    world = cell_of(1)
    world.pass_time(SILENCE_MS - 1)
    world.tell(Cordon(cell=CELL, node="n00"))
    assert kinds(world.pass_time(1)) == ["LeaseExpired"]


def test_two_silent_nodes_of_ten_are_lost() -> None:
    world = cell_of(10)
    assert silence(world, *(f"n{number:02}" for number in range(2, 10))) == ["LeaseExpired"] * 2


def test_three_silent_nodes_of_ten_are_none() -> None:
    world = cell_of(10)
    assert silence(world, *(f"n{number:02}" for number in range(3, 10))) == []
    assert world.service.leases_frozen


def test_the_breaker_lets_go_when_enough_nodes_speak_again() -> None:
    world = cell_of(10)
    speaking = [f"n{number:02}" for number in range(3, 10)]
    silence(world, *speaking)
    assert silence(world, "n02", *speaking) == ["LeaseExpired"] * 2
    assert not world.service.leases_frozen


def test_lost_nodes_count_neither_as_silent_nor_as_living() -> None:
    world = cell_of(10)
    world.tell(*(lost(f"n{number:02}") for number in range(5)))
    assert silence(world, *(f"n{number:02}" for number in range(6, 10))) == ["LeaseExpired"]


def test_a_writer_that_was_away_gives_everybody_a_new_lease() -> None:
    world = cell_of(1)
    world.wall_ms += 10 * SILENCE_MS
    assert world.rest() == []
    assert world.pass_time(SILENCE_MS - 1) == []


def test_a_writer_that_takes_over_gives_everybody_a_new_lease() -> None:
    world = cell_of(1)
    world.pass_time(SILENCE_MS - 10)
    world.restart()
    assert world.pass_time(SILENCE_MS - 1) == []
    assert kinds(world.pass_time(1)) == ["LeaseExpired"]


def test_a_lost_node_comes_back_and_has_a_lease_again() -> None:
    world = cell_of(1)
    world.pass_time(SILENCE_MS)
    world.tell(report("n00"))
    assert is_ready(world, "n00")
    assert kinds(world.pass_time(SILENCE_MS)) == ["LeaseExpired"]


def test_a_stepped_cell_expires_no_lease() -> None:
    world = cell_with(joined("n1"), stepped=True)
    assert world.pass_time(10 * SILENCE_MS) == []


def test_a_node_that_nobody_knows_is_never_lost() -> None:
    leases = Leases()
    leases.heard("stranger", 0)
    leases.asked(CellState("cell-a"), 0, SILENCE_MS)
    leases.reached(0)
    assert leases.expired(CellState("cell-a")) == []


def test_a_node_whose_words_lie_unread_in_the_log_is_not_lost() -> None:
    world = cell_of(1)
    world.unread_nodes = 1
    assert world.pass_time(3 * SILENCE_MS) == []
    assert world.service.nodes_unread_ms(world.wall_ms) == 3 * SILENCE_MS
    world.unread_nodes = 0
    assert world.tell(report("n00")) == []
    assert world.pass_time(SILENCE_MS - 1) == []
    assert kinds(world.pass_time(1)) == ["LeaseExpired"]


def test_a_lease_runs_out_as_of_the_moment_at_which_the_end_of_the_topic_was_asked_for() -> None:
    """The topic is read a minute late all the time: silence is seen a minute late, and no node dies of the lag."""
    leases, state = Leases(), cell_of(1).state
    leases.begin(state, 0)
    for second in range(200):
        leases.asked(state, second, second * 1_000)
        leases.reached(second - 60)
        lost = leases.expired(state)
        assert bool(lost) == (second - 60 > SILENCE_MS // 1_000), second


def test_an_end_that_is_never_reached_forgets_no_older_one() -> None:
    listening = Listening()
    for second in range(5_000):
        listening.asked(second, second, 10)
    for reached in (0, 10, 4_000, 4_999):
        listening.reached(reached)
        assert listening.as_of_ms is not None
        assert 0 <= reached - listening.as_of_ms <= 50
