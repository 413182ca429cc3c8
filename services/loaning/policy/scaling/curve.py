"""Scaling curves: the throughput of a job by its number of workers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class ScalingCurve:
    """Throughput in whole units of the job's own choice, for `workers_min` workers, one more, and so on.

    Only ratios count. A curve has no holes, begins above 0 and never falls: a job that slows down with more workers is
    told up to its best number. Raises ValueError with field, value and rule.
    """

    workers_min: int
    throughput: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.workers_min < 1:
            raise ValueError(f"workers_min = {self.workers_min}: must be at least 1")
        if not self.throughput:
            raise ValueError("throughput = (): must have a value for workers_min")
        if self.throughput[0] <= 0:
            raise ValueError(f"throughput of {self.workers_min} workers = {self.throughput[0]}: must be above 0")
        for more, (before, after) in enumerate(pairwise(self.throughput), self.workers_min + 1):
            if after < before:
                raise ValueError(f"throughput of {more} workers = {after}: must be at least {before}, that of one less")

    @property
    def workers_max(self) -> int:
        """The largest number of workers that the curve tells of."""
        return self.workers_min + len(self.throughput) - 1

    def run_ms(self, base_ms: int, workers: int) -> int:
        """The run time with so many workers of work that takes `base_ms` with `workers_min`, rounded up."""
        return -(-base_ms * self.throughput[0] // self.throughput[workers - self.workers_min])


def linear(workers_min: int, workers_max: int) -> ScalingCurve:
    """Twice the workers, half the run time: the model of Lyra (section 5.2)."""
    return ScalingCurve(workers_min, tuple(range(workers_min, workers_max + 1)))


def diminishing(workers_min: int, workers_max: int, kept_pct: int) -> ScalingCurve:
    """Each worker beyond the first `workers_min` brings `kept_pct` per cent of what one of those does."""
    added = range(workers_max - workers_min + 1)
    return ScalingCurve(workers_min, tuple(100 * workers_min + kept_pct * more for more in added))
