"""A record that comes again is judged as of its first try, and every other one as of its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.admission.app.as_of import AsOf
from shared.log.port import Record
from tests.hypothesis_profile import EXAMPLES

PARTITIONS, MOST = 2, 6

counts_of_partitions = st.lists(st.integers(0, MOST), min_size=PARTITIONS, max_size=PARTITIONS)
tries = st.lists(
    st.fixed_dictionaries(
        {
            "later_ms": st.integers(1, 1_000),
            "answered_elsewhere": counts_of_partitions,
            "counts": counts_of_partitions,
            "fails": st.booleans(),
        }
    ),
    max_size=20,
)


def record(partition: int, offset: int) -> Record:
    return Record("t.submissions", partition, offset, None, b"", (), 0)


def moved(places: list[int], by: list[int]) -> list[int]:
    return [place + count for place, count in zip(places, by, strict=True)]


@settings(max_examples=4 * EXAMPLES)
@given(tries)
def test_each_record_is_judged_as_of_the_first_time_that_it_was_tried(drawn: list[dict[str, object]]) -> None:
    as_of, now_ms, places, first_tries = AsOf(), 0, [0] * PARTITIONS, dict[tuple[int, int], int]()
    for each in drawn:
        later_ms, elsewhere, counts, fails = each["later_ms"], each["answered_elsewhere"], each["counts"], each["fails"]
        assert isinstance(later_ms, int)
        assert isinstance(elsewhere, list)
        assert isinstance(counts, list)
        now_ms, places = now_ms + later_ms, moved(places, elsewhere)
        batch = [(number, places[number] + at) for number, count in enumerate(counts) for at in range(count)]
        as_of.begin(now_ms)
        for where in batch:
            assert as_of.of(record(*where)) == first_tries.setdefault(where, now_ms)
        records = [record(*where) for where in batch]
        if fails:
            as_of.failed(records)
        else:
            as_of.done(records)
            places = moved(places, counts)


def test_what_is_answered_leaves_nothing_behind() -> None:
    as_of = AsOf()
    for offset in range(100):
        as_of.begin(offset)
        as_of.failed([record(0, offset), record(1, offset)])
    as_of.done([record(0, 99)])
    assert list(as_of._tried) == [("t.submissions", 1)]


def test_a_batch_that_fails_for_hours_takes_no_more_room_than_one_that_failed_once() -> None:
    as_of, batch = AsOf(), [record(0, offset) for offset in range(3)]
    for now_ms in range(1_000):
        as_of.begin(now_ms)
        as_of.failed(batch)
        as_of.failed(batch[:2])
    assert [len(tried) for tried in as_of._tried.values()] == [1]
