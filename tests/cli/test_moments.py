"""Any time that an event can hold is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.moments import CALENDAR_TO_MS, DAY_MS, duration, moment
from shared.events.base import CALENDAR_FROM_MS, LATEST_MS


@given(st.integers(0, LATEST_MS) | st.sampled_from([0, 1, LATEST_MS - 1, LATEST_MS]))
def test_every_time_and_duration_is_told_in_a_few_printable_words(ms: int) -> None:
    for text in (moment(ms), duration(ms)):
        assert text.isprintable()
        assert len(text) <= 32


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (CALENDAR_FROM_MS - 1, "day 1157 09:46:39.999"),
        (CALENDAR_FROM_MS, "1973-03-03 09:46:40.000"),
        (CALENDAR_TO_MS - 1, "9999-12-31 23:59:59.999"),
        (CALENDAR_TO_MS, f"day {CALENDAR_TO_MS // DAY_MS} 00:00:00.000"),
    ],
)
def test_a_time_is_of_the_calendar_as_long_as_that_has_years(ms: int, told: str) -> None:
    assert moment(ms) == told
