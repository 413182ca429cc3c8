"""What is expected of runs by those that are over."""

from __future__ import annotations

from statistics import median_high

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.cluster.run_times.history import (
    NEWS_PART,
    RUNS_LEAST,
    RUNS_MAX,
    RunHistory,
    bucket_of,
    end_of,
    same_until_ms,
)
from fallow.shared.events.base import LATEST_MS
from tests.hypothesis_profile import reaches

RUN_MS = st.integers(0, 60_000) | st.integers(0, 40).map(lambda bits: 1 << bits) | st.integers(0, LATEST_MS)


def history(*runs_ms: int) -> RunHistory:
    found = RunHistory()
    for number, run_ms in enumerate(runs_ms):
        found = found.with_run(run_ms, number)
    return found


@given(RUN_MS)
def test_a_bucket_holds_what_is_shorter_than_its_end_and_a_fourth_of_a_doubling(run_ms: int) -> None:
    bucket = bucket_of(run_ms)
    begin = end_of(bucket - 1) if bucket else 0
    reaches("a run is longer than the shortest bucket", bucket)
    assert begin <= run_ms < end_of(bucket)
    assert not bucket or 4 * end_of(bucket) <= 5 * begin


def test_nothing_is_said_of_few_runs() -> None:
    runs = [5_000] * RUNS_LEAST
    assert not history(*runs[1:]).told
    assert history(*runs).run_ms() == end_of(bucket_of(5_000))


@given(st.lists(RUN_MS, min_size=RUNS_LEAST, max_size=8), RUN_MS)
def test_of_a_run_the_middle_one_of_those_that_ran_as_long_is_expected(runs_ms: list[int], ran_ms: int) -> None:
    known = history(*runs_ms)
    longer = [end_of(bucket_of(run_ms)) for run_ms in runs_ms if bucket_of(run_ms) >= bucket_of(ran_ms)]
    reaches("some run was as long", longer)
    reaches("none was as long", not longer)
    assert known.run_ms(ran_ms) > min(ran_ms, LATEST_MS - 1)
    if longer:
        assert known.run_ms(ran_ms) == median_high(longer)
    else:
        assert known.run_ms(ran_ms) == min(LATEST_MS, end_of(bucket_of(ran_ms)) * 3 // 2)


@given(st.lists(RUN_MS, min_size=RUNS_LEAST, max_size=8), RUN_MS, RUN_MS)
def test_the_longer_a_run_has_lasted_the_longer_it_is_expected_to(runs_ms: list[int], one: int, other: int) -> None:
    known = history(*runs_ms)
    assert known.run_ms(min(one, other)) <= known.run_ms(max(one, other)) or known.run_ms(max(one, other)) == LATEST_MS


@given(st.lists(RUN_MS, min_size=RUNS_LEAST, max_size=8), RUN_MS)
def test_what_is_expected_stays_the_same_up_to_the_time_that_is_named(runs_ms: list[int], ran_ms: int) -> None:
    known, until_ms = history(*runs_ms), same_until_ms(ran_ms)
    assert until_ms > ran_ms or until_ms == LATEST_MS
    assert known.run_ms(ran_ms) == known.run_ms(max(ran_ms, until_ms - 1))


def test_what_is_said_is_brought_up_to_date_when_a_part_more_have_ended() -> None:
    known = history(*[2_000] * 80)
    told_of, news = known.told_of, 0
    while known.told_of == told_of:
        known, news = known.with_run(3_600_000, 100 + news), news + 1
    assert news <= told_of // NEWS_PART + 1
    assert known.run_ms(2_600) == end_of(bucket_of(3_600_000))


def test_old_runs_are_forgotten_as_new_ones_come_and_counts_stay_bounded() -> None:
    known = history(*[2_000] * 2 * RUNS_MAX)
    assert sum(count for _, count in known.counts) <= RUNS_MAX
    for number in range(2 * RUNS_MAX):
        known = known.with_run(3_600_000, number)
    assert known.run_ms() == end_of(bucket_of(3_600_000))
