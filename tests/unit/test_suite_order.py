"""The order in which files of tests begin."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import reaches
from tests.suite_order import LAST_PART, spread

counts = st.integers(0, 60)


@given(counts, counts)
def test_every_file_comes_once_and_in_the_order_of_its_kind(waiting: int, computing: int) -> None:
    found = spread([("w", n) for n in range(waiting)], [("c", n) for n in range(computing)])
    assert [n for kind, n in found if kind == "w"] == list(range(waiting))
    assert [n for kind, n in found if kind == "c"] == list(range(computing))


@given(counts, counts)
def test_files_that_wait_stand_evenly_and_the_last_ones_compute(waiting: int, computing: int) -> None:
    found = spread("w" * waiting, "c" * computing)
    runs = [len(list(run)) for kind, run in groupby(found) if kind == "w"]
    reaches("files that wait stand between others", len(runs) > 2)
    if computing > 1:
        assert max(runs, default=0) - min(runs, default=0) <= 1
        assert found[-(computing // LAST_PART) :].count("w") == 0 or computing < LAST_PART
