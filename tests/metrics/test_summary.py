"""The figures of a whole run, and the watch over its invariants."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fallow.services.metrics.policy.summary import RunSummary
from fallow.services.metrics.policy.watch import LogWatch
from fallow.services.metrics.service import MetricsService
from fallow.shared.cluster.model.state import CellState
from fallow.shared.events import effects as e
from fallow.shared.events.decisions import Decision
from fallow.shared.events.fields.values import GPU, WorkerPlace
from fallow.shared.events.reasons import FailReason, RefuseCode
from tests.histories import CELL, History
from tests.hypothesis_profile import reaches
from tests.metrics.logs import Log, waits


def refused(job: str, request: str = "submit") -> e.JobRefused:
    return e.JobRefused(job=job, request=request, code=RefuseCode.TOO_MANY_WAITING)


def test_a_run_is_summed_up() -> None:
    summary = RunSummary()
    log = Log(summary.take)
    waits(log, (2, 0), (1, 100), (1, 300))
    log.submit(300, "job-3", 1)
    log.submit(300, "job-4", 1)
    log.finish(400, "job-0")
    log.decide(400, e.JobFailed(job="job-1", reason=FailReason.RETRIES_EXHAUSTED))
    log.decide(400, e.JobCancelled(job="job-3"))
    log.decide(400, refused("job-5"))
    summary.turn_away("job-6")
    result = summary.result(500)
    assert (result.submitted, result.completed, result.failed, result.cancelled) == (7, 1, 1, 1)
    assert (result.rejected, result.unfinished, result.versions) == (2, 2, log.state.version)
    assert (result.wait_ms_mean, result.wait_ms_p50, result.wait_ms_p99) == (Fraction(400, 3), 100, 300)
    assert result.gar_mean == result.sor == Fraction(2 * 400 + 1 * 300 + 1 * 200, 1_000 * 500)


def test_a_second_submission_under_a_used_id_is_no_job_of_its_own() -> None:
    summary = RunSummary()
    log = Log(summary.take)
    log.submit(0, "a")
    log.decide(0, refused("a"))
    assert (summary.result().submitted, summary.result().rejected) == (1, 0)


def test_a_refused_cancel_is_no_submission() -> None:
    summary = RunSummary()
    Log(summary.take).decide(0, refused("a", "cancel"))
    assert summary.result().submitted == 0


def test_a_rejected_id_that_is_accepted_later_is_an_accepted_one() -> None:
    summary = RunSummary()
    summary.turn_away("a")
    Log(summary.take).submit(0, "a")
    assert (summary.result().submitted, summary.result().rejected) == (1, 0)


def test_an_empty_run_has_no_means() -> None:
    assert RunSummary().result().as_json()["gar_mean"] is None


@given(st.integers(0, 10**6), st.sets(st.integers(1, 100).map("job-{:05}".format), max_size=20))
def test_the_counts_add_up_whatever_happens(seed: int, turned_away: set[str]) -> None:
    """Of the jobs that admission turned away some are accepted later."""
    history, summary, accepted = History(seed), RunSummary(), set[str]()
    for job in sorted(turned_away):
        summary.turn_away(job)
    for _ in range(60):
        decision = history.decide()
        summary.take(history.state, decision)
        accepted |= {effect.spec.id for effect in decision.effects if isinstance(effect, e.JobEnqueued)}
    result = summary.result()
    over = result.completed + result.failed + result.cancelled
    counts = (result.completed, result.failed, result.cancelled, result.rejected, result.unfinished)
    reaches(
        "jobs end in every way, and some that were turned away are accepted", all(counts) and turned_away & accepted
    )
    assert result.submitted == over + result.rejected + result.unfinished
    assert result.rejected == len(turned_away - accepted)
    assert result.unfinished == len(history.state.jobs)


@given(st.integers(0, 10**6), st.integers(0, 40))
def test_a_service_that_begins_in_the_middle_finds_no_offence_in_a_legal_life(seed: int, before: int) -> None:
    history = History(seed)
    history.decisions(before)
    reaches("a service begins while jobs run", any(job.workers for job in history.state.jobs.values()))
    service = MetricsService(history.state)
    offences = [service.take(history.state, history.decide()) for _ in range(40)]
    checks = [service.watch.check_next(history.state)[1] for _ in range(6)]
    assert [offence for offence in [*offences, *checks] if offence is not None] == []


def test_a_start_on_a_device_in_use_is_an_offence() -> None:
    log = Log()
    waits(log, (1, 0), (1, 100))
    watch = LogWatch(log.state)
    places = (WorkerPlace(rank=0, node="n1", devices=(0,), gpu_milli=GPU),)
    log.submit(100, "c", 1)
    watch.take(log.decisions[-1])
    start = e.JobStarted(job="c", attempt=1, workers=places)
    offence = watch.take(Decision(cell=CELL, version=99, epoch=1, at_ms=100, effects=(start,)))
    assert offence is not None
    assert offence.invariant == "I1"
    assert watch.take(log.decisions[-1]) is None


def test_a_state_that_counts_wrong_is_found_by_one_of_the_checks() -> None:
    log = Log()
    waits(log, (1, 0))
    watch = LogWatch(log.state)
    log.state.waiting += 1
    found = [watch.check_next(log.state) for _ in range(6)]
    assert [(name, offence.invariant) for name, offence in found if offence is not None] == [("jobs", "I2")]


def test_a_service_of_an_empty_cell_begins() -> None:
    assert MetricsService(CellState(CELL)).decisions == 0
