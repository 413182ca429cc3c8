"""How an executor process comes by a slot, and how it loses one."""

from __future__ import annotations

from fallow.services.executor.policy.slots import FENCED_PAUSE_MS, Slots

OURS = frozenset({1, 2})


def held(slots: Slots) -> list[int]:
    return list(slots.held)


def taken_over(slot: int) -> Slots:
    slots = Slots()
    slots.assign(frozenset({slot}), [slot])
    slots.come([slot], 0)
    slots.claimed(slot, 7, 0)
    slots.to_adopt(0)
    return slots


def test_only_slots_with_nodes_come() -> None:
    assert Slots().assign(OURS, [2, 3]) == ([], [2])


def test_a_reign_is_taken_once_the_log_is_folded_to_where_it_ended_when_the_slot_was_heard_of() -> None:
    slots = Slots()
    slots.assign(OURS, [1])
    slots.come([1], 10)
    assert slots.to_claim(9, 0) == []
    assert slots.to_claim(10, 0) == [1]


def test_a_slot_is_adopted_once_the_log_is_folded_to_where_it_ended_when_its_reign_was_taken() -> None:
    slots = Slots()
    slots.assign(OURS, [1])
    slots.come([1], 10)
    slots.claimed(1, 77, 12)
    assert slots.to_adopt(11) == {}
    assert slots.to_adopt(12) == {1: 77}
    assert held(slots) == [1]
    assert not slots.is_coming


def test_what_the_group_takes_back_is_let_go_of_at_once_and_does_not_come_any_more() -> None:
    slots = taken_over(1)
    slots.assign(OURS, [1, 2])
    slots.come([2], 5)
    assert slots.assign(frozenset(), [1, 2]) == ([1], [])
    assert slots.to_claim(100, 0) == []
    assert not slots.is_coming


def test_a_claim_that_comes_for_a_slot_that_went_meanwhile_counts_for_nothing() -> None:
    slots = Slots()
    slots.assign(OURS, [1])
    slots.come([1], 0)
    slots.assign(frozenset(), [1])
    assert not slots.claimed(1, 77, 0)
    assert slots.to_adopt(100) == {}


def test_a_reign_that_was_taken_is_let_go_of_with_its_slot() -> None:
    slots = Slots()
    slots.assign(OURS, [1])
    slots.come([1], 0)
    assert slots.claimed(1, 77, 5)
    assert slots.assign(frozenset(), [1]).lost == [1]
    assert slots.to_adopt(100) == {}


def test_a_slot_is_new_only_once() -> None:
    slots = Slots()
    slots.assign(OURS, [1, 2])
    slots.come([1], 5)
    assert slots.assign(OURS, [1, 2]).new == [2]


def test_a_fenced_slot_is_asked_for_again_after_a_pause_while_it_is_still_to_be_ours() -> None:
    slots = taken_over(1)
    assert slots.fenced([1, 4], 50) == [1]
    assert held(slots) == []
    assert slots.to_claim(100, 50 + FENCED_PAUSE_MS - 1) == []
    assert slots.next_claim_ms() == 50 + FENCED_PAUSE_MS
    assert slots.to_claim(100, 50 + FENCED_PAUSE_MS) == [1]


def test_a_slot_that_is_not_to_be_ours_any_more_is_not_asked_for_again() -> None:
    slots = Slots()
    slots.assign(frozenset({1}), [1])
    slots.come([1], 0)
    slots.claimed(1, 7, 0)
    slots.to_adopt(0)
    slots.assign(frozenset(), [1])
    assert slots.fenced([1], 0) == []
    assert slots.next_claim_ms() is None
