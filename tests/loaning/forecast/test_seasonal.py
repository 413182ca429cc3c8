"""Forecasts of demand by seasonal quantiles, the rule that sizes loans by them, and the backtest that judges rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.services.loaning.policy.forecast.backtest import backtest, by_forecast, by_point, perfect
from fallow.services.loaning.policy.forecast.forecast import PPM, lendable
from fallow.services.loaning.policy.forecast.seasonal import DAYS_MAX, SeasonalQuantiles
from tests.hypothesis_profile import reaches

DAY = (200_000, 300_000, 700_000, 900_000, 600_000, 400_000)
"""A short day of six samples."""

CURVES = st.lists(st.integers(0, PPM), min_size=13, max_size=40)


def observed(samples: Sequence[int], season: int = 6, around: int = 0) -> SeasonalQuantiles:
    forecast = SeasonalQuantiles(season, around)
    for sample in samples:
        forecast.observe(sample)
    return forecast


def test_a_day_that_repeats_is_known_exactly() -> None:
    assert [observed((*DAY, *DAY, *DAY[:hour])).peak_ppm(1, PPM) for hour in range(1, 6)] == list(DAY[1:])
    assert observed((*DAY, *DAY, DAY[0])).peak_ppm(3, PPM) == 900_000


def test_the_rise_counts_and_not_the_level() -> None:
    higher = tuple(sample + 50_000 for sample in DAY)
    assert observed((*DAY, *higher[:2])).peak_ppm(1, PPM) == 750_000


def test_no_forecast_is_above_all_servers_or_below_none() -> None:
    assert observed((0, 900_000, 0, 0, 0, 0, 500_000)).peak_ppm(1, PPM) == PPM
    assert observed((900_000, 0, 0, 0, 0, 0, 100_000)).peak_ppm(1, PPM) == 0


def test_a_quantile_leaves_out_the_largest_rises() -> None:
    rises = (100_000, 0, 0, 0)
    samples = [sample for rise in rises for sample in (200_000, 200_000 + rise, 200_000)]
    forecast = observed([*samples, 200_000], season=3)
    assert [forecast.peak_ppm(1, ppm) for ppm in (750_000, 750_001, PPM)] == [200_000, 300_000, 300_000]


def test_nothing_is_lent_before_enough_was_seen() -> None:
    assert observed(DAY).peak_ppm(1, PPM) is None
    assert lendable(observed(DAY), 10, 1, PPM) == 0
    assert lendable(observed((*DAY, DAY[0])), 10, 1, PPM) == 7


@given(CURVES, st.integers(1, 6), st.integers(0, 2), st.integers(1, PPM))
def test_the_quantile_is_that_of_a_plain_count_of_all_rises(
    samples: list[int], steps: int, around: int, quantile_ppm: int
) -> None:
    season, now = 6, len(samples) - 1
    rises = []
    for then in range(now - steps + 1):
        hours_away = min((now - then) % season, (then - now) % season)
        if hours_away <= around and now - then + around >= season:
            rises.append(max(samples[then + 1 : then + 1 + steps]) - samples[then])
    found = observed(samples, season, around).peak_ppm(steps, quantile_ppm)
    assert found is not None
    not_above = sum(min(PPM, max(0, samples[now] + rise)) <= found for rise in rises)
    assert not_above * PPM >= quantile_ppm * len(rises)
    if found > 0:
        below = sum(min(PPM, max(0, samples[now] + rise)) < found for rise in rises)
        assert below * PPM < quantile_ppm * len(rises)
    reaches("a forecast between the least and the largest rise", 1 < not_above < len(rises))


@given(CURVES, st.integers(1, 3), st.integers(1, PPM), st.integers(1, PPM))
def test_a_longer_loan_and_a_larger_quantile_lend_no_more(
    samples: list[int], steps: int, one_ppm: int, other_ppm: int
) -> None:
    forecast = observed(samples, around=1)
    low, high = sorted((one_ppm, other_ppm))
    assert lendable(forecast, 520, steps, high) <= lendable(forecast, 520, steps, low)


def test_what_was_long_ago_is_forgotten_and_changes_nothing() -> None:
    days = [(*DAY[:5], 400_000 + 1_000 * (day % 7)) for day in range(3 * DAYS_MAX)]
    every = [sample for day in days for sample in day] + [DAY[0]]
    late = every[-(DAYS_MAX * 6 + 1) :]
    assert observed(every).peak_ppm(2, 900_000) == observed(late).peak_ppm(2, 900_000)


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        (lambda: SeasonalQuantiles(0), "season = 0: must be at least 1"),
        (lambda: SeasonalQuantiles(6, -1), "around = -1: must be at least 0"),
        (lambda: SeasonalQuantiles(6, 3), "around = 3: must be less than half of season, 6"),
        (lambda: SeasonalQuantiles(6, days_min=0), "days_min = 0: must be at least 1"),
        (lambda: observed([PPM + 1]), "busy_ppm = 1000001: must be from 0 to 1000000"),
        (lambda: observed([-1]), "busy_ppm = -1: must be from 0 to 1000000"),
        (lambda: observed(DAY).peak_ppm(0, PPM), "steps = 0: must be at least 1"),
        (lambda: observed(DAY).peak_ppm(1, 0), "quantile_ppm = 0: must be above 0, and at most 1000000"),
    ],
)
def test_what_cannot_be_is_refused(what: object, rule: str) -> None:
    assert callable(what)
    with pytest.raises(ValueError, match=rule):
        what()


def test_the_backtest_counts_servers_lent_and_steps_in_which_some_lack() -> None:
    """Of 10 servers 3 are needed next, then 7, then 9; 5 are lent each time."""
    tested = backtest(DAY[:4], lambda *_: 5, servers=10, begin=0, steps=1)
    assert (tested.lent, tested.short, tested.steps) == (15, 2, 3)


def test_lyras_rule_with_a_perfect_forecast_is_never_short_and_one_by_points_is() -> None:
    flat = (*DAY, *DAY, 200_000, 350_000, 700_000)
    assert backtest(flat, perfect(10, 1), 10, begin=6, steps=1).short == 0
    assert perfect(10, 1)(flat, 12) == 6, "650,000 less 20,000 of a million"
    assert by_point(10, 1, 6)(flat, 12) == 6, "it rose from 200,000 to 300,000 on both days"
    assert by_point(100, 1, 6)(flat, 12) == 68
    assert backtest(flat, by_point(100, 1, 6), 100, begin=12, steps=1).short == 1


@given(CURVES, st.integers(1, 3), st.integers(1, PPM))
def test_no_rule_by_a_forecast_knows_the_future(samples: list[int], steps: int, quantile_ppm: int) -> None:
    now = len(samples) - 2
    others = [*samples[: now + 1], PPM - samples[now + 1]]
    rules = [by_forecast(10, steps, lambda: SeasonalQuantiles(6, 1), quantile_ppm) for _ in range(2)]
    assert rules[0](samples, now) == rules[1](others, now)
