"""How far planned starts were from what came."""

from __future__ import annotations

import pytest

from fallow.services.queueing.policy import forecast_error
from fallow.services.queueing.policy.forecast_error import ForecastError
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.queue import PlannedStart
from fallow.shared.events.reasons import FailReason


def decision(at_ms: int, *effects: e.AnyEffect) -> Decision:
    return Decision(cell="main", version=1, epoch=1, at_ms=at_ms, effects=effects)


def planned(error: ForecastError, *starts: tuple[str, int]) -> None:
    error.planned([PlannedStart(job=job, start_ms=start_ms) for job, start_ms in starts])


def noted(error: ForecastError, at_ms: int, *effects: e.AnyEffect) -> list[tuple[str, int]]:
    return list(error.note(decision(at_ms, *effects)))


@pytest.mark.parametrize(("at_ms", "told"), [(60, ("early", 40)), (100, ("late", 0)), (130, ("late", 30))])
def test_a_start_is_told_once_by_its_distance_from_the_first_plan(at_ms: int, told: tuple[str, int]) -> None:
    error = ForecastError()
    planned(error, ("job", 100))
    planned(error, ("job", 500))
    start = e.JobStarted(job="job", attempt=1)
    assert noted(error, at_ms, start) == [told]
    assert noted(error, at_ms, start) == []


@pytest.mark.parametrize(
    "end",
    [
        e.JobCancelled(job="job"),
        e.JobHeld(job="job"),
        e.JobFailed(job="job", reason=FailReason.RETRIES_EXHAUSTED),
    ],
)
def test_a_job_that_waits_no_more_is_counted_by_the_plans_that_come_later(end: e.AnyEffect) -> None:
    error = ForecastError()
    planned(error, ("job", 100))
    assert noted(error, 50, end) == []
    planned(error, ("job", 700))
    assert noted(error, 700, e.JobStarted(job="job", attempt=1)) == [("late", 0)]


def test_the_oldest_plan_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast_error, "REMEMBERED_MAX", 2)
    error = ForecastError()
    planned(error, ("a", 1), ("b", 2), ("c", 3))
    starts = [e.JobStarted(job=job, attempt=1) for job in "abc"]
    assert noted(error, 10, *starts) == [("late", 8), ("late", 7)]
