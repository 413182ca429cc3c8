"""Means and medians of what changes in steps, computed by hand."""

from __future__ import annotations

import pytest

from fallow.simulator.trace.course import Steps


@pytest.fixture
def steps() -> Steps:
    """A half from 0 on, all from 10 on, a quarter from 30 on."""
    found = Steps()
    for at_ms, part, whole in ((0, 1, 2), (5, 2, 4), (10, 0, 4), (10, 4, 4), (30, 1, 4)):
        found.set(at_ms, part, whole)
    return found


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "mean", "median"),
    [
        (0, 10, 0.5, 0.5),
        (0, 40, 0.6875, 0.5),
        (5, 35, (5 * 0.5 + 20 + 5 * 0.25) / 30, 1.0),
        (30, 40, 0.25, 0.25),
        (50, 60, 0.25, 0.25),
        (7, 7, None, None),
    ],
)
def test_means_and_medians_are_weighted_by_time(
    steps: Steps, from_ms: int, to_ms: int, mean: float | None, median: float | None
) -> None:
    assert steps.mean(from_ms, to_ms) == (None if mean is None else pytest.approx(mean))
    assert steps.median(from_ms, to_ms) == median


def test_nothing_has_no_mean() -> None:
    assert (Steps().mean(0, 10), Steps().median(0, 10)) == (None, None)
