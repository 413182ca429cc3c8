"""What dies is started again soon, and later and later while it keeps dying."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fallow.shared.runtime.stack.restarts import CALM_MS, PAUSE_FIRST_MS, PAUSE_MAX_MS, Deaths, how_it_ended
from tests.hypothesis_profile import reaches


def test_pauses_double_while_it_keeps_dying() -> None:
    deaths = Deaths(0)
    pauses = []
    for _ in range(9):
        pauses.append(deaths.died(1_000))
        deaths.started(1_000)
    assert pauses == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


def test_what_has_run_for_long_dies_for_the_first_time_again() -> None:
    deaths = Deaths(0)
    deaths.died(0)
    deaths.died(0)
    deaths.started(1_000)
    assert deaths.died(1_000 + CALM_MS) == PAUSE_FIRST_MS


@given(st.lists(st.integers(0, 2 * CALM_MS), max_size=60))
def test_every_pause_is_within_its_bounds(lives_ms: list[int]) -> None:
    deaths, now_ms = Deaths(0), 0
    pauses = [PAUSE_FIRST_MS]
    for life_ms in lives_ms:
        now_ms += life_ms
        pauses.append(deaths.died(now_ms))
        assert PAUSE_FIRST_MS <= pauses[-1] <= PAUSE_MAX_MS
        deaths.started(now_ms)
    reaches("a pause is longer than the first one", max(pauses) > PAUSE_FIRST_MS)


def test_the_end_of_a_process_is_told_in_words() -> None:
    assert how_it_ended(1) == "ended with code 1"
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(-255) == "was killed by signal 255"
