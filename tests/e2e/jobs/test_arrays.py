"""An array, one of whose elements is held, and a job that waits for all of it, on the running services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fallow.shared.cluster.model.job import JobStatus
from fallow.shared.events.effects import JobCancelled, JobRunning, JobStarted
from fallow.shared.events.fields.values import Dependency, VirtualRun
from fallow.shared.events.operations import HoldJob, ReleaseJob
from fallow.shared.events.reasons import CancelReason
from tests.e2e.worlds.running_cell import CELL, RunningCell, a_job, in_full, running_cell

pytestmark = pytest.mark.real_kafka


@pytest.fixture
async def cell(kafka: str, redis_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[RunningCell]:
    async with running_cell(kafka, redis_url, namespace, tmp_path) as cell:
        yield cell


def running_at_once_max(cell: RunningCell, array: str) -> int:
    """How many elements held places at one time, at most."""
    running, most = dict[str, None](), 0
    for effect in (effect for decision in cell.decisions for effect in decision.effects):
        job = getattr(effect, "job", "")
        if not job.startswith(f"{in_full(array)}."):
            continue
        if isinstance(effect, JobStarted):
            running[job] = None
        elif not isinstance(effect, JobRunning):
            running.pop(job, None)
        most = max(most, len(running))
    return most


async def test_an_array_with_a_held_element_and_a_job_behind_it_all_end_right(cell: RunningCell) -> None:
    await cell.submit(a_job("first", ms=500))
    await cell.submit(
        a_job("many", ms=200, array=6, array_max_running=2, after=[{"job": "first"}]),
        a_job("next", after=[{"job": "many"}]),
    )
    await cell.until(
        lambda c: "vision/many" in c.state.arrays and "vision/next" in c.state.jobs, what="the array to be accepted"
    )
    await cell.publish(HoldJob(cell=CELL, job="vision/many.3"))
    others = [f"many.{index}" for index in (0, 1, 2, 4, 5)]
    await cell.until_over("first", *others)
    assert (cell.state.jobs["vision/many.3"].status, cell.state.jobs["vision/next"].status) == (
        JobStatus.HELD,
        JobStatus.AWAITING,
    )
    assert cell.state.arrays["vision/many"].left == 1
    await cell.publish(ReleaseJob(cell=CELL, job="vision/many"))
    await cell.until_over("many", "next")
    over = [cell.state.finished[in_full(job)] for job in ("many", "many.3", "next")]
    assert {job.status for job in over} == {JobStatus.FINISHED}
    assert cell.story("next")[:3] == ["JobEnqueued", "JobDeferred", "JobReady"]
    assert running_at_once_max(cell, "many") == 2
    assert cell.problems() == []


async def test_what_waits_for_a_failure_is_cancelled_and_says_why(cell: RunningCell) -> None:
    broken = VirtualRun(duration_ms=2_000, fail_at_ms=1_000)
    await cell.submit(a_job("broken", run=broken), a_job("next", after=[Dependency(job="broken")]))
    await cell.until_over("broken", "next")
    ends = [x for decision in cell.decisions for x in decision.effects if isinstance(x, JobCancelled)]
    assert [(x.job, x.reason, x.because_of) for x in ends] == [
        ("vision/next", CancelReason.DEPENDENCY_FAILED, "vision/broken")
    ]
    assert cell.problems() == []
