"""Of an array with a limit, no more elements stand in a line than may start."""

from __future__ import annotations

from services.queueing.policy.limited import Limited
from shared.cluster.queue_order import Order


def order(index: int, priority: int = 0) -> Order:
    return (-priority, 0, index, f"a.{index}")


def with_elements(*indices: int) -> Limited:
    limited = Limited()
    for index in indices:
        limited.add("a", order(index))
    return limited


def test_the_first_ones_stand_in_line() -> None:
    assert with_elements(2, 0, 1).settle("a", 2) == ([], ["a.0", "a.1"])


def test_who_starts_leaves_and_the_next_one_enters_when_there_is_room() -> None:
    limited = with_elements(0, 1, 2)
    limited.settle("a", 1)
    limited.remove("a.0")
    assert limited.settle("a", 0) == ([], [])
    assert limited.settle("a", 1) == ([], ["a.1"])


def test_an_earlier_one_takes_the_place_of_a_later_one() -> None:
    limited = with_elements(1, 2)
    limited.settle("a", 1)
    limited.add("a", order(0))
    assert limited.settle("a", 1) == (["a.1"], ["a.0"])


def test_one_that_moves_up_enters_anew() -> None:
    limited = with_elements(0, 1)
    limited.settle("a", 1)
    limited.add("a", order(1, priority=5))
    assert limited.settle("a", 1) == (["a.0"], ["a.1"])


def test_the_same_again_changes_nothing() -> None:
    limited = with_elements(0)
    limited.settle("a", 1)
    limited.add("a", order(0))
    assert limited.settle("a", 1) == ([], [])


def test_only_arrays_of_which_something_changed_are_looked_at() -> None:
    limited = with_elements(0)
    assert limited.take_touched() == ["a"]
    assert limited.take_touched() == []
