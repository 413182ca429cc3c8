"""The seasonal quantiles against Lyra's rule on measured curves, at no more time in which servers lack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fallow.bench.aryl.demand import read_demand
from fallow.services.loaning.policy.forecast.backtest import LoanOutcome, backtest, by_forecast, by_point, perfect
from fallow.services.loaning.policy.forecast.forecast import PPM
from fallow.services.loaning.policy.forecast.seasonal import SeasonalQuantiles

FOLDER = os.environ.get("FALLOW_TRACES", "")
NEEDS_TRACES = pytest.mark.skipif(not FOLDER, reason="FALLOW_TRACES names no folder of traces")
FILE = "infer_demand_14d_5min.csv.gz"
DAY, SERVERS, AROUND = 288, 520, 24
BEGIN = 3 * DAY
RESOLUTION_PPM = 4_000


def curve_of(column: str) -> tuple[int, ...]:
    return read_demand(Path(FOLDER) / FILE, column).busy_ppm


def by_quantile(curve: tuple[int, ...], quantile_ppm: int) -> LoanOutcome:
    rule = by_forecast(SERVERS, 1, lambda: SeasonalQuantiles(DAY, AROUND), quantile_ppm)
    return backtest(curve, rule, SERVERS, BEGIN, 1)


@NEEDS_TRACES
@pytest.mark.parametrize(
    "column", ["servegen_m_small", "servegen_m_mid", "servegen_m_large", "o365_llama31_8b_prod", "o365_llama2_70b_prod"]
)
def test_a_quantile_lends_more_than_a_point_and_two_per_cent_at_no_more_shortage(column: str) -> None:
    curve = curve_of(column)
    point = backtest(curve, by_point(SERVERS, 1, DAY), SERVERS, BEGIN, 1)
    short_ppm, enough_ppm = 300_000, PPM
    while enough_ppm - short_ppm > RESOLUTION_PPM:
        middle = (short_ppm + enough_ppm) // 2
        if by_quantile(curve, middle).short <= point.short:
            enough_ppm = middle
        else:
            short_ppm = middle
    ours = by_quantile(curve, enough_ppm)
    assert ours.short <= point.short
    assert ours.lent >= point.lent


@NEEDS_TRACES
@pytest.mark.parametrize("column", ["lyra_like_busy", "lyra_like_o365_busy"])
def test_on_smooth_curves_two_per_cent_is_hardly_ever_too_little_and_a_quantile_lends_more_with_more_shortage(
    column: str,
) -> None:
    curve = curve_of(column)
    point = backtest(curve, by_point(SERVERS, 1, DAY), SERVERS, BEGIN, 1)
    ours = by_quantile(curve, PPM)
    assert point.short < ours.short < 100
    assert ours.lent > point.lent
    assert backtest(curve, perfect(SERVERS, 1), SERVERS, BEGIN, 1).short == 0
