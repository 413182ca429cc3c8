"""What becomes of an attempt of which nothing is left: a row for each reason to stop and each mix of endings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fallow.services.placement.lifecycle.runs.outcome import outcome_of
from fallow.services.placement.lifecycle.runs.retry import FAULTS_MAX, backoff_ms
from fallow.shared.cluster.model.job import Job, JobStatus
from fallow.shared.events.effects import JobFailed, JobRequeued
from fallow.shared.events.fields.values import RetryPolicy, RunStatus
from fallow.shared.events.reasons import RequeueReason, StopReason
from tests.placement.worlds.world import DIGEST, kinds, spec_of

FINISHED, FAILED, STOPPED = RunStatus.FINISHED, RunStatus.FAILED, RunStatus.STOPPED
INFRASTRUCTURE, FAILURE, PREEMPTED = RequeueReason.INFRASTRUCTURE, RequeueReason.WORKER_FAILED, RequeueReason.PREEMPTED


def job(why: StopReason | None, **fields: Any) -> Job:
    retry = RetryPolicy(budget=1, backoff_ms=10, backoff_max_ms=1_000)
    status = JobStatus.RUNNING if why is None else JobStatus.STOPPING
    return Job(spec_of("job", retry=retry), 0, DIGEST, status, attempt=1, stop_why=why, **fields)


@pytest.mark.parametrize(
    ("why", "runs", "expected"),
    [
        (None, (FINISHED, FINISHED), ["JobFinished"]),
        (StopReason.CANCELLED, (FINISHED, FINISHED), ["JobFinished"]),
        (StopReason.RUN_TIME_LIMIT, (FINISHED,), ["JobFinished"]),
        (StopReason.CANCELLED, (STOPPED, FINISHED), ["JobCancelled"]),
        (StopReason.CANCELLED, (FAILED, STOPPED), ["JobCancelled"]),
        (None, (FAILED, FINISHED), [FAILURE]),
        (None, (STOPPED, FINISHED), [INFRASTRUCTURE]),
        (StopReason.WORKER_FAILED, (FAILED, STOPPED), [FAILURE]),
        (StopReason.WORKER_FAILED, (STOPPED, STOPPED), [INFRASTRUCTURE]),
        (StopReason.RUN_TIME_LIMIT, (STOPPED,), ["JobFailed"]),
        (StopReason.START_TIMED_OUT, (STOPPED,), [RequeueReason.START_TIMED_OUT]),
        (StopReason.NODE_LOST, (FAILED, STOPPED), [INFRASTRUCTURE]),
        (StopReason.DEVICE_FAILED, (STOPPED,), [INFRASTRUCTURE]),
        (StopReason.DRAINED, (STOPPED,), [RequeueReason.DRAINED]),
        (StopReason.PRIORITY, (STOPPED,), ["JobPreempted", PREEMPTED]),
        (StopReason.QUOTA_RECLAIM, (FAILED,), ["JobPreempted", PREEMPTED]),
        (StopReason.BACKFILL_TIMEOUT, (STOPPED,), ["JobPreempted", PREEMPTED]),
        (StopReason.LOAN_RECLAIM, (STOPPED, FINISHED), ["JobPreempted", PREEMPTED]),
        (StopReason.MIGRATION, (STOPPED,), ["JobPreempted", PREEMPTED]),
    ],
)
def test_the_reason_to_stop_decides_what_follows(
    why: StopReason | None, runs: tuple[RunStatus, ...], expected: list[str]
) -> None:
    effects = outcome_of(job(why), {f"n{number}": status for number, status in enumerate(runs)}, now_ms=100)
    told = [str(effect.reason) if isinstance(effect, JobRequeued) else kinds([effect])[0] for effect in effects]
    assert told == expected


def test_a_used_up_budget_ends_the_job() -> None:
    assert kinds(outcome_of(job(None, failures=1), {"n1": FAILED}, now_ms=0)) == ["JobFailed"]


@pytest.mark.parametrize(
    ("why", "runs", "text", "fault", "told"),
    [
        (
            StopReason.DEVICE_FAILED,
            (STOPPED, FAILED),
            "lost its peer",
            None,
            "51 attempts in a row were lost, the last one: full",
        ),
        (StopReason.NODE_LOST, (STOPPED, STOPPED), "", None, ""),
        (StopReason.NODE_LOST, (STOPPED, FAILED), "lost its peer", "full", ""),
        (StopReason.WORKER_FAILED, (STOPPED, STOPPED), "", "full", ""),
        (None, (STOPPED, FINISHED), "", None, ""),
        (None, (STOPPED, FINISHED), "a failure", None, ""),
        (None, (STOPPED, FINISHED), "", "full", "51 attempts in a row were lost, the last one: full"),
        (None, (STOPPED,), "", "", "51 attempts in a row were lost, the last one by a fault of its node"),
    ],
)
def test_losses_in_a_row_end_a_job_only_with_a_fault_that_a_node_named_of_the_last(
    why: StopReason | None, runs: tuple[RunStatus, ...], text: str, fault: str | None, told: str
) -> None:
    lost = job(why, losses=FAULTS_MAX, stop_text="full" if why is StopReason.DEVICE_FAILED else "")
    (end,) = outcome_of(lost, {f"n{at}": status for at, status in enumerate(runs)}, 100, text, fault)
    assert (end.text if isinstance(end, JobFailed) else "") == told
    (again,) = outcome_of(replace(lost, losses=FAULTS_MAX - 1), {"n0": STOPPED}, 100, text, fault)
    assert isinstance(again, JobRequeued)


def test_only_a_failure_of_a_worker_uses_the_budget_and_waits() -> None:
    (lost,) = outcome_of(job(StopReason.NODE_LOST, failures=1), {"n1": STOPPED}, now_ms=7)
    (failed,) = outcome_of(job(None), {"n1": FAILED}, now_ms=7)
    assert isinstance(lost, JobRequeued)
    assert isinstance(failed, JobRequeued)
    assert (lost.failures, lost.not_before_ms) == (1, 7)
    assert (failed.failures, failed.not_before_ms) == (1, 17)


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 10), (1, 10), (2, 20), (3, 40), (7, 640), (8, 1_000), (999, 1_000)]
)
def test_the_pause_doubles_until_its_maximum(failures: int, pause: int) -> None:
    assert backoff_ms(job(None), failures) == pause
