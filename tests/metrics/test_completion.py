"""How long jobs take from submission to their good end."""

from __future__ import annotations

from fallow.services.metrics.policy.completion import CompletionTimes
from fallow.shared.events import effects as e
from tests.metrics.logs import Log


def a_log(times: CompletionTimes) -> Log:
    log = Log(times.take)
    log.node(0, "n1")
    log.submit(1_000, "job-0", submit_ms=500)
    log.submit(1_000, "job-1", submit_ms=500)
    log.start(1_000, "job-0", "n1")
    return log


def test_it_counts_from_the_submission_to_the_good_end() -> None:
    times = CompletionTimes()
    log = a_log(times)
    log.finish(4_500, "job-0")
    assert (times.times.count, times.times.sum_ms) == (1, 4_000)


def test_a_job_that_was_cancelled_does_not_count() -> None:
    times = CompletionTimes()
    a_log(times).decide(3_000, e.JobCancelled(job="job-1"))
    assert times.times.count == 0


def test_carried_jobs_do_not_count() -> None:
    times = CompletionTimes({"job-0"})
    a_log(times).finish(4_500, "job-0")
    assert times.times.count == 0


def test_from_a_state_on_it_knows_the_jobs_of_that_state() -> None:
    log = a_log(CompletionTimes())
    times = CompletionTimes()
    times.begin(log.state)
    times.take(log.state, log.finish(4_500, "job-0"))
    assert times.times.ordered() == [4_000]
