"""Seasonal quantiles: by how much demand rose within the next steps, at this time of earlier days.

What counts is the rise above the present sample, not the level: the level of a day differs from that of another one by
more than its shape does. The rises of some minutes around the time of day are taken together, so that a handful of days
gives enough of them. No training: each sample is observed once, and a question reads some hundred numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from fallow.services.loaning.policy.forecast.forecast import PPM, check_asked, check_observed

DAYS_MAX = 28


class SeasonalQuantiles:
    """Of a season of so many samples (a day of five minutes has 288); `around`: so many samples on either side."""

    def __init__(self, season: int, around: int = 6, days_min: int = 1) -> None:
        for name, value, least in (("season", season, 1), ("around", around, 0), ("days_min", days_min, 1)):
            if value < least:
                raise ValueError(f"{name} = {value}: must be at least {least}")
        if 2 * around >= season:
            raise ValueError(f"around = {around}: must be less than half of season, {season}")
        self._season, self._around, self._days_min = season, around, days_min
        self._samples: list[int] = []

    def observe(self, busy_ppm: int) -> None:
        """The next sample. Raises ValueError."""
        check_observed(busy_ppm)
        self._samples.append(busy_ppm)
        if len(self._samples) > 2 * DAYS_MAX * self._season:
            del self._samples[: DAYS_MAX * self._season]

    def peak_ppm(self, steps: int, quantile_ppm: int) -> int | None:
        """The present sample and the quantile of the rises; None before enough seasons. Raises ValueError."""
        check_asked(steps, quantile_ppm)
        if len(self._samples) < self._days_min * self._season + steps:
            return None
        rises = sorted(self._rises(steps))
        if not rises:
            return None
        rank = -(-len(rises) * quantile_ppm // PPM) - 1
        return min(PPM, max(0, self._samples[-1] + rises[rank]))

    def _rises(self, steps: int) -> Iterator[int]:
        """By how much the largest of the next samples was above the one of then, around this time of earlier days."""
        samples = self._samples
        now = len(samples) - 1
        for days in range(1, min((now + self._around) // self._season, DAYS_MAX) + 1):
            middle = now - days * self._season
            for then in range(max(0, middle - self._around), min(now - steps, middle + self._around) + 1):
                yield max(samples[then + 1 : then + 1 + steps]) - samples[then]
