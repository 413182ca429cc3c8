"""Any time that an event can hold is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.cli.output.durations import CALENDAR_TO_MS, DAY_MS, duration, moment, to_the_second
from fallow.cli.output.when import moment_of, point_of
from fallow.shared.events.base import CALENDAR_FROM_MS, LATEST_MS
from tests.hypothesis_profile import reaches


@given(st.integers(0, LATEST_MS) | st.sampled_from([0, 1, LATEST_MS - 1, LATEST_MS]))
def test_every_time_and_duration_is_told_in_a_few_printable_words(ms: int) -> None:
    for text in (moment(ms), duration(ms)):
        assert text.isprintable()
        assert len(text) <= 32


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (CALENDAR_FROM_MS - 1, "day 1157 09:46:39.999"),
        (CALENDAR_FROM_MS, "1973-03-03 09:46:40.000Z"),
        (CALENDAR_TO_MS - 1, "9999-12-31 23:59:59.999Z"),
        (CALENDAR_TO_MS, f"day {CALENDAR_TO_MS // DAY_MS} 00:00:00.000"),
    ],
)
def test_a_time_is_of_the_calendar_as_long_as_that_has_years(ms: int, told: str) -> None:
    assert moment(ms) == told


@given(st.integers(0, LATEST_MS) | st.sampled_from([CALENDAR_FROM_MS, CALENDAR_TO_MS - 1]))
def test_what_is_told_can_be_given_to_a_command_and_is_told_with_its_zone(ms: int) -> None:
    reaches("a time is one of the calendar", CALENDAR_FROM_MS <= ms < CALENDAR_TO_MS)
    if ms < 10**9 * DAY_MS:  # the days of a command have nine digits
        assert moment_of(moment(ms)) == ms
        assert moment_of(to_the_second(ms)) == ms // 1_000 * 1_000
    for text in (moment(ms), to_the_second(ms)):
        assert text.endswith("Z") or text.startswith("day ")


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [("2h", 7_200_007), ("2026-03-01 12:30", 1_772_368_200_000), ("2026-03-01 12:30Z", 1_772_368_200_000)],
)
def test_a_point_in_time_is_a_duration_from_now_or_a_time_in_utc(text: str, at_ms: int) -> None:
    point = point_of(text)
    assert point is not None
    assert point.at_ms(7) == at_ms
    assert point_of("soon") is None
