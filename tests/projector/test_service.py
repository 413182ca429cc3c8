"""When Redis is tried again, and when a view is too old."""

from __future__ import annotations

from fallow.services.projector.service import PAUSE_WALL_MS_MAX, STEP_ROWS, Lag, Pace, Patience


def test_pauses_double_up_to_a_bound_and_are_spread_by_chance() -> None:
    patience = Patience()
    assert [patience.failed(0, 0.5) for _ in range(9)] == [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
    assert patience.failed(1_000, 0.0) == PAUSE_WALL_MS_MAX // 2
    assert patience.not_before_ms == 1_000 + PAUSE_WALL_MS_MAX // 2


def test_after_a_success_the_next_attempt_comes_at_once() -> None:
    patience = Patience()
    patience.failed(1_000, 0.5)
    patience.succeeded()
    assert patience.not_before_ms == 0
    assert patience.failed(0, 0.5) == 50


def test_a_view_is_too_old_by_records_or_by_time() -> None:
    lag = Lag(records_max=10, wall_ms_max=1_000)
    lag.is_at(3, now_ms=100)
    assert lag.complaint(1_100) is None
    assert lag.complaint(1_101) == "the view is 3 records behind, for 1001 ms"
    lag.is_at(11, now_ms=100)
    assert lag.complaint(100) == "the view is 11 records behind, for 0 ms"


def test_a_view_that_has_caught_up_is_young_again() -> None:
    lag = Lag(records_max=10, wall_ms_max=1_000)
    lag.is_at(5, now_ms=0)
    lag.is_at(0, now_ms=5_000)
    lag.is_at(1, now_ms=6_000)
    assert lag.wall_ms(6_500) == 500
    assert lag.complaint(6_500) is None


def test_what_comes_after_a_silence_is_shown_at_once_and_what_follows_is_gathered() -> None:
    pace = Pace(wall_ms=100, records_max=50)
    pace.stepped(1, rows=3, asked_ms=1_000)
    assert pace.pause_ms(1_250) == 0
    pace.stepped(1, rows=3, asked_ms=1_250)
    assert pace.pause_ms(1_260) == 90


def test_a_backlog_is_not_waited_for() -> None:
    pace = Pace(wall_ms=100, records_max=50)
    pace.stepped(50, rows=100, asked_ms=1_000)
    assert pace.pause_ms(1_001) == 0


def test_a_step_takes_as_many_records_as_give_a_bounded_number_of_rows() -> None:
    pace = Pace(wall_ms=100, records_max=50)
    pace.stepped(50, rows=10 * STEP_ROWS, asked_ms=0)
    assert pace.records == 5
    pace.stepped(5, rows=5, asked_ms=0)
    assert pace.records == 10
    pace.stepped(1, rows=10 * STEP_ROWS, asked_ms=0)
    assert pace.records == 1
