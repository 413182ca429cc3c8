"""Due entries: what lives is due as in any heap, and what is pointless takes no more room than what lives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.fold.due import ROOM_LEAST, DueHeap
from tests.hypothesis_profile import reaches

few = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), max_size=20)
entries = few | st.builds(
    lambda some, times: [(at_ms + turn, number + turn) for turn in range(times) for at_ms, number in some],
    few,
    st.integers(10, 60),
)
"""A few, or many: what is thrown out is looked for in a heap of many only."""


@given(entries, st.integers(1, 20))
def test_what_lives_comes_out_in_its_order_whatever_was_let_go_of(pushed: list[tuple[int, int]], every: int) -> None:
    heap, alive = DueHeap[tuple[int, int]](), dict[tuple[int, int], None]()
    for entry in pushed:
        if entry[1] % every == 0:
            alive[entry] = None
        heap.push(entry, alive.__contains__)
    out = []
    while heap.first is not None:
        assert heap.is_due(heap.first[0])
        assert not heap.is_due(heap.first[0] - 1)
        out.append(heap.pop())
    reaches("entries that were let go of are thrown out before they are due", len(out) < len(pushed))
    assert out == sorted(out)
    assert list(dict.fromkeys(entry for entry in out if entry in alive)) == sorted(alive)


@given(st.integers(0, 300), st.integers(0, 3_000))
def test_entries_that_have_become_pointless_take_no_more_room_than_those_that_live(live: int, gone: int) -> None:
    heap = DueHeap[tuple[int, int]]()
    reaches("most entries of a heap have become pointless", live and gone > ROOM_LEAST + 3 * live)
    for number in range(live + gone):
        heap.push((1_000_000 - number, number), lambda entry: entry[1] < live)
    assert len(heap) <= ROOM_LEAST + 3 * live + 1


def test_a_push_costs_few_questions_on_average() -> None:
    heap, asked = DueHeap[tuple[int, int]](), 0

    def lives(entry: tuple[int, int]) -> bool:
        nonlocal asked
        asked += 1
        return entry[1] % 2 == 0

    for number in range(100_000):
        heap.push((number, number), lives)
    assert asked <= 500_000


def test_an_entry_that_was_put_in_again_and_again_is_held_once() -> None:
    heap = DueHeap[tuple[int, str]]()
    for _ in range(10_000):
        heap.push((7, "the same"), lambda _: True)
    assert len(heap) <= ROOM_LEAST + 3
