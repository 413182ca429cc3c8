from __future__ import annotations

import pytest

from fallow.shared.events.base import LATEST_MS
from fallow.shared.events.codec.encoding import decode, encode
from fallow.shared.events.decisions import Decision
from fallow.shared.runtime.clocks import SteppedCellClock, WallCellClock, clock_from, wall_ms
from fallow.shared.runtime.settings import LATEST_CELL_MS, ClockKind, ServiceSettings, SettingsError


def test_cell_time_with_origin_zero_and_speed_one_is_unix_time() -> None:
    before = wall_ms()
    assert before <= WallCellClock().now_ms() <= wall_ms()


def test_cell_time_runs_faster_than_wall_time() -> None:
    origin = wall_ms() - 1_000
    assert 100_000 <= WallCellClock(origin, speed=100).now_ms() < 160_000


def test_cell_time_before_its_origin_is_zero() -> None:
    assert WallCellClock(wall_ms() + 60_000).now_ms() == 0


def test_cell_time_does_not_go_back_with_the_machines_clock() -> None:
    told = iter([5_000, 3_000, 6_000])
    clock = WallCellClock(wall=lambda: next(told))
    assert [clock.now_ms(), clock.now_ms(), clock.now_ms()] == [5_000, 5_000, 6_000]


def test_what_a_clock_said_while_it_was_wrong_is_forgotten_once_it_is_right() -> None:
    told = iter([5_000, 7_205_000, 6_000, 6_000, 6_100, 7_000])
    clock = WallCellClock(wall=lambda: next(told))
    assert [clock.now_ms(), clock.now_ms()] == [5_000, 7_205_000]
    assert clock.now_ms() == 7_205_000
    clock.forget_if_ahead(1_000)
    assert [clock.now_ms(), clock.now_ms()] == [6_100, 7_000]


def test_what_it_said_a_little_ahead_stands() -> None:
    told = iter([5_000, 4_500, 4_600])
    clock = WallCellClock(wall=lambda: next(told))
    clock.now_ms()
    clock.forget_if_ahead(1_000)
    assert clock.now_ms() == 5_000


def test_a_wait_in_cell_time_is_shorter_in_wall_time_and_rounded_up() -> None:
    clock = WallCellClock(speed=10, wall=lambda: 1_000)
    assert clock.wall_wait_ms(10_101) == 11
    assert clock.wall_wait_ms(9_000) == 0


@pytest.mark.parametrize("speed", [1, 10_000, 100_000])
def test_cell_time_that_counts_from_1970_can_be_read_at_any_speed(speed: int) -> None:
    now_ms = WallCellClock(speed=speed).now_ms()
    decision = Decision(cell="a", version=1, epoch=0, at_ms=now_ms)
    assert decode(Decision.type, encode(decision)) == decision
    assert WallCellClock(speed=speed).now_ms() >= now_ms


def test_cell_time_ends_where_records_do() -> None:
    assert WallCellClock(speed=100_000, wall=lambda: 10**15).now_ms() == LATEST_CELL_MS == LATEST_MS


def test_a_clock_whose_time_would_soon_end_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_CLOCK_SPEED", "1000000")
    with pytest.raises(SettingsError, match="cell time would end within ten years"):
        ServiceSettings.load()
    monkeypatch.setenv("FALLOW_CLOCK_ORIGIN_MS", str(wall_ms()))
    assert ServiceSettings.load().clock_speed == 1_000_000


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ValueError, match="speed = 0"):
        WallCellClock(speed=0)


def test_a_stepped_clock_goes_on_only_when_told_and_never_back() -> None:
    clock = SteppedCellClock()
    clock.advance_to(500)
    clock.advance_to(400)
    assert clock.now_ms() == 500


def test_settings_choose_the_clock() -> None:
    assert isinstance(clock_from(ServiceSettings(clock=ClockKind.STEPPED)), SteppedCellClock)
    assert isinstance(clock_from(ServiceSettings(clock_speed=60)), WallCellClock)
