"""When Redis is tried again, and when a view is too old."""

from __future__ import annotations

from services.projector.service import PAUSE_WALL_MS_MOST, Lag, Patience


def test_pauses_double_up_to_a_bound_and_are_spread_by_chance() -> None:
    patience = Patience()
    assert [patience.failed(0, 0.5) for _ in range(9)] == [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert patience.failed(1_000, 0.0) == PAUSE_WALL_MS_MOST // 2
    assert patience.not_before_ms == 1_000 + PAUSE_WALL_MS_MOST // 2


def test_after_a_success_the_next_attempt_comes_at_once() -> None:
    patience = Patience()
    patience.failed(1_000, 0.5)
    patience.succeeded()
    assert patience.not_before_ms == 0
    assert patience.failed(0, 0.5) == 50


def test_a_view_is_too_old_by_records_or_by_time() -> None:
    lag = Lag(records_most=10, wall_ms_most=1_000)
    lag.is_at(3, now_ms=100)
    assert lag.complaint(1_100) is None
    assert lag.complaint(1_101) == "the view is 3 records behind, for 1001 ms"
    lag.is_at(11, now_ms=100)
    assert lag.complaint(100) == "the view is 11 records behind, for 0 ms"


def test_a_view_that_has_caught_up_is_young_again() -> None:
    lag = Lag(records_most=10, wall_ms_most=1_000)
    lag.is_at(5, now_ms=0)
    lag.is_at(0, now_ms=5_000)
    lag.is_at(1, now_ms=6_000)
    assert lag.wall_ms(6_500) == 500
    assert lag.complaint(6_500) is None
