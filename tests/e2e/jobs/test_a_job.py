"""One job through every state, as its tenant and an auditor see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.fields.values import NodeStatus, RetryPolicy, VirtualRun
from fallow.shared.events.operations import Cordon, Drain, HoldJob, ReleaseJob, Uncordon
from fallow.shared.events.submissions import CancelJob, JobChanges, SubmitJob, UpdateJob
from tests.e2e.worlds.running_cell import RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka


@pytest.fixture
async def cell(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[RunningCell]:
    async with running_cell(kafka, redis_url, namespace, tmp_path) as cell:
        yield cell


def status(cell: RunningCell, job: str) -> JobStatus | None:
    live = cell.state.jobs.get(in_full(job))
    return live.status if live else None


async def test_jobs_run_are_cancelled_fail_and_end_and_every_record_adds_up(cell: RunningCell) -> None:
    await cell.submit(
        a_job("one", ms=300),
        a_job(
            "flaky",
            run=VirtualRun(duration_ms=300, fail_at_ms=50, fail_attempts=1),
            retry=RetryPolicy(budget=1, backoff_ms=100),
        ),
        a_job("broken", run=VirtualRun(duration_ms=300, fail_at_ms=50)),
        a_job("slow", ms=None, max_run_ms=400),
        a_job("third", run=VirtualRun(duration_ms=100), gpus=1),
    )
    await cell.until_over("one", "flaky", "broken", "slow", "third")
    # It takes all nodes: beside it the others would have to wait, in whichever order they came.
    await cell.submit(a_job("gang", workers=4, gpus=8, ms=300))
    await cell.until_over("gang")
    assert cell.story("one") == ["JobEnqueued", "JobStarted", "JobRunning", "JobFinished"]
    assert cell.story("gang")[-1] == "JobFinished"
    assert cell.story("flaky").count("JobStarted") == 2
    assert cell.state.finished["vision/flaky"].status is JobStatus.FINISHED
    assert cell.state.finished["vision/broken"].status is JobStatus.FAILED
    assert cell.story("slow")[-3:] == ["AttemptTimedOut", "JobStopping", "JobFailed"]
    assert cell.problems() == []


async def test_a_cancel_ends_a_job_in_each_state_it_can_be_in(cell: RunningCell) -> None:
    await cell.submit(a_job("fills", workers=4, gpus=8, ms=None))
    await cell.until(lambda c: status(c, "fills") is JobStatus.RUNNING, what="fills to run")
    await cell.submit(a_job("waits"), a_job("held", hold=True))
    await cell.until(lambda c: status(c, "held") is JobStatus.HELD, what="held to be held")
    await cell.publish(*(CancelJob(job=job, tenant="vision") for job in ("waits", "held", "fills", "fills", "absent")))
    await cell.submit(a_job("starting", ms=None))
    await cell.publish(CancelJob(job="starting", tenant="vision"))
    await cell.publish(CancelJob(job="starting", tenant="speech"))
    await cell.until_over("waits", "held", "fills", "starting")
    await cell.publish(CancelJob(job="waits", tenant="vision"), CancelJob(job="last", tenant="vision"))
    await cell.until(lambda c: c.story("last") == ["JobRefused"], what="the cancel of an unknown job to be refused")
    cancelled = [in_full(job) for job in ("waits", "held", "fills", "starting")]
    assert {cell.state.finished[job].status for job in cancelled} == {JobStatus.CANCELLED}
    assert cell.story("absent") == ["JobRefused"]
    assert "JobStopping" in cell.story("fills")
    assert cell.problems() == []


async def test_a_submission_that_comes_again_is_one_job_and_another_under_its_name_is_refused(
    cell: RunningCell,
) -> None:
    await cell.submit(a_job("twice"), a_job("twice"), a_job("twice", gpus=2))
    await cell.until_over("twice")
    await cell.submit(a_job("twice"), a_job("after"))
    await cell.until_over("after")
    assert cell.story("twice").count("JobEnqueued") == 1
    assert cell.story("twice").count("JobStarted") == 1
    assert cell.story("twice").count("JobRefused") == 1
    assert cell.problems() == []


async def test_operators_hold_release_update_cordon_and_drain(cell: RunningCell) -> None:
    await cell.submit(a_job("held", hold=True, ms=100), a_job("stays", workers=1, gpus=8, ms=None))
    await cell.until(lambda c: status(c, "stays") is JobStatus.RUNNING, what="stays to run")
    node = cell.state.jobs["vision/stays"].workers[0].node
    await cell.publish(ReleaseJob(cell="main", job="vision/held"), Cordon(cell="main", node="node-003"))
    await cell.until_over("held")
    await cell.publish(Drain(cell="main", node=node), HoldJob(cell="main", job="vision/absent"))
    await cell.until(
        lambda c: c.story("stays").count("JobStarted") == 2 and status(c, "stays") is JobStatus.RUNNING,
        what="stays to run elsewhere",
    )
    assert cell.state.jobs["vision/stays"].workers[0].node not in (node, "node-003")
    assert cell.state.jobs["vision/stays"].failures == 0
    await cell.publish(Uncordon(cell="main", node=node), Uncordon(cell="main", node="node-003"))
    await cell.publish(UpdateJob(job="stays", tenant="vision", changes=JobChanges(priority=7)))
    await cell.publish(UpdateJob(job="stays", tenant="vision", changes=JobChanges(workers=2)))
    await cell.until(lambda c: c.state.nodes[node].status is NodeStatus.READY, what="the node to be ready")
    await cell.until(lambda c: "JobRefused" in c.story("stays"), what="the refusal of other workers")
    assert cell.state.jobs["vision/stays"].spec.priority == 7
    assert cell.problems() == []


async def test_what_is_no_valid_command_is_answered_or_set_aside_and_never_blocks(cell: RunningCell) -> None:
    good = cell.layout.outgoing(SubmitJob(job=a_job("good")), id="g", source="t", wall_ms=0)
    bad = [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"job": {"id": "bad", "tenant": "vision", "workers": 0}}', b"null"]
    key = good.key
    await cell.log.publish([type(good)(good.topic, value, key, good.headers) for value in bad])
    await cell.log.publish(
        [type(good)(good.topic, good.value, key, ()), type(good)(good.topic, None, key, good.headers)]
    )
    await cell.log.publish([good])
    await cell.until_over("good")
    letters, jobs = cell.layout.topic("dead-letters"), cell.layout.topic("jobs")
    ends = await cell.log.end_offsets([(letters, 0), (jobs, 0)])
    assert ends[letters, 0] == 7
    assert ends[jobs, 0] == 2
    assert cell.problems() == []
