"""The port of forecasts, and the rule that sizes loans by one."""

from __future__ import annotations

from typing import Protocol

PPM = 1_000_000


class Forecast(Protocol):
    """Learns from the demand as it comes, and tells what it will not exceed."""

    def observe(self, busy_ppm: int) -> None:
        """The next sample: the busy part of the inference servers, in millionths. Samples come in equal steps."""

    def peak_ppm(self, steps: int, quantile_ppm: int) -> int | None:
        """What the largest of the next `steps` samples does not exceed in so many millionths of all cases; None where
        too little was observed.
        """


def lendable(forecast: Forecast, servers: int, steps: int, quantile_ppm: int) -> int:
    """How many servers may be lent for so many steps, so that demand is not met in 1 - quantile of all cases at most.

    Nothing is lent before the forecast knows enough.
    """
    peak_ppm = forecast.peak_ppm(steps, quantile_ppm)
    return 0 if peak_ppm is None else max(0, PPM - peak_ppm) * servers // PPM


def check_asked(steps: int, quantile_ppm: int) -> None:
    """Raises ValueError with field, value and rule."""
    if steps < 1:
        raise ValueError(f"steps = {steps}: must be at least 1")
    if not 0 < quantile_ppm <= PPM:
        raise ValueError(f"quantile_ppm = {quantile_ppm}: must be above 0, and at most {PPM}")


def check_observed(busy_ppm: int) -> None:
    """Raises ValueError with field, value and rule."""
    if not 0 <= busy_ppm <= PPM:
        raise ValueError(f"busy_ppm = {busy_ppm}: must be from 0 to {PPM}")
